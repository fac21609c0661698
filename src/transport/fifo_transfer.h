#pragma once

#include <variant>

#include "transport/shared_group.h"

namespace lockstep::transport {

/// A message through a fifo: header, length, payload. Moved on by whichever thread of the rank waits for
/// anything in its stream.
///
/// Of a large payload in the sender's arena only its place goes through the fifo: the receiver copies it from
/// there, once, while the sender does something else. A last byte that the receiver takes tells the sender
/// that it may use its memory again.
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
  uint64_t moved() override;
  bool needs_company() override;

  // For the group, which holds the stream's lock.
  bool move();  ///< Whether anything moved.
  bool done() const { return done_.load(std::memory_order_acquire); }

 private:
  struct Preamble {
    Header header;
    uint64_t bytes;
    int64_t place;  ///< Of the payload in the sender's arena; -1: it follows.
  };
  enum class End : uint8_t { kWell, kMismatched, kWithdrawn, kNowhere, kCorrupt };
  static constexpr size_t kByPlaceBytes = size_t{16} << 10;  ///< From here on; below, two copies cost less.

  bool sends() const { return std::holds_alternative<Source>(data_); }
  /// Bytes of the fifo behind the preamble.
  size_t streamed_bytes() const { return preamble_.place < 0 ? bytes_ : 1; }
  static int64_t place_of(const SharedGroup& group, const std::variant<Source, Destination>& data,
                          size_t bytes);
  bool write();
  bool read();
  /// Counts bytes that the fifo wrote or took. False, and it is over, if the fifo is corrupt.
  bool count(size_t bytes, size_t& moved);
  bool look_for_receipt();
  End check_and_copy();
  void finish(End how = End::kWell);
  void throw_if_bad() const;

  SharedGroup& group_;
  const Stream stream_;
  const int peer_;
  const std::variant<Source, Destination> data_;
  const size_t bytes_;
  SharedGroup::End& end_;
  uint64_t ticket_ = 0;
  Preamble preamble_;  ///< Sent, or received.
  const Header expected_;
  size_t moved_ = 0;      ///< Bytes of preamble and what follows it.
  uint64_t written_ = 0;  ///< Position in the fifo behind the message, once it is written.
  std::atomic<bool> done_ = false;
  End how_ = End::kWell;  ///< Written before done_.
};

}  // namespace lockstep::transport
