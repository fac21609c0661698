#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "launch/unique_fd.h"
#include "transport/frames.h"

namespace lockstep::transport {

/// A stream socket that carries messages both ways and never blocks. For one thread.
class Connection {
 public:
  enum class Incoming {
    kNoMore,  ///< All that has come is read.
    kMore,    ///< There may be more; the others' turn first.
    kEnded,   ///< The peer has closed it, or it broke.
  };

  Connection() = default;
  Connection(launch::UniqueFd socket, std::size_t frame_limit)
      : socket_(std::move(socket)), parser_(frame_limit) {}

  bool is_open() const { return static_cast<bool>(socket_); }
  int fd() const { return socket_.get(); }
  void close();

  /// Frames are shared, so that one blob for many ranks is there once.
  void queue(std::shared_ptr<const std::string> frame);
  bool has_queued() const { return !outgoing_.empty(); }
  /// Sends what the socket takes now. If the connection broke, drops all: receive() tells of the end, after
  /// what the peer had said before.
  void flush();

  /// Hands over each message that has come. Throws FrameError if the peer sent something else.
  Incoming receive(const std::function<void(Message&&)>& take);

  /// What to say of a peer whose connection ended without its goodbye: that it is gone, or, if the network
  /// gave up, that it does not answer.
  std::string_view how_it_ended() const;

 private:
  void note_break(int error);

  launch::UniqueFd socket_;
  FrameParser parser_{0};
  std::deque<std::shared_ptr<const std::string>> outgoing_;
  std::size_t sent_ = 0;     ///< Bytes of the first outgoing frame.
  bool is_answered_ = true;  ///< Not by the peer's host any more, as far as the kernel can tell.
};

}  // namespace lockstep::transport
