#pragma once

#include <variant>

#include "transport/shared_group.h"

namespace lockstep::transport {

/// A message through a fifo: header, length, payload. Moved on by whichever thread of the rank waits for
/// anything in its stream.
class FifoTransfer final : public Transfer {
 public:
  struct Source {
    const std::byte* data;
  };
  struct Destination {
    std::byte* data;
  };

  FifoTransfer(SharedGroup& group, Stream stream, int peer, const Header& header,
               std::variant<Source, Destination> data, size_t bytes);
  ~FifoTransfer() override;

  bool test() override;
  void wait(const Limit& limit) override;

  // For the group, which holds the stream's lock.
  bool move();  ///< Whether anything moved.
  bool done() const { return done_.load(std::memory_order_acquire); }

 private:
  struct Preamble {
    Header header;
    uint64_t bytes;
  };

  bool sends() const { return std::holds_alternative<Source>(data_); }
  bool write();
  bool read();
  void finish();
  void throw_if_mismatched() const;

  SharedGroup& group_;
  const Stream stream_;
  const int peer_;
  const std::variant<Source, Destination> data_;
  const size_t bytes_;
  SharedGroup::End& end_;
  uint64_t ticket_ = 0;
  Preamble preamble_;  ///< Sent, or received.
  const Header expected_;
  size_t moved_ = 0;      ///< Bytes of preamble and payload.
  uint64_t written_ = 0;  ///< Position in the fifo behind the message, once it is written.
  std::atomic<bool> done_ = false;
  bool mismatched_ = false;  ///< Written before done_.
};

}  // namespace lockstep::transport
