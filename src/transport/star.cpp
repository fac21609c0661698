#include "transport/star.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "lockstep/error.h"
#include "transport/owner.h"
#include "transport/star_client.h"

namespace lockstep::transport {

namespace {

/// A rank's client and, on rank 0, the star's middle. A forked child inherits the descriptors, but none of
/// the threads.
class Star final : public Control {
 public:
  Star(int rank, std::unique_ptr<StarServer> server, std::unique_ptr<StarClient> client)
      : rank_(rank), server_(std::move(server)), client_(std::move(client)) {}

  ~Star() override {
    if (owner_.is_here()) return;
    // Its threads are the parent's, its locks in any state: not to be joined or destroyed here.
    static_cast<void>(server_.release());
    static_cast<void>(client_.release());
  }

  std::vector<std::string> all_gather(const std::string& tag, const std::vector<int>& members,
                                      const std::string& blob, Clock::time_point deadline) override {
    owner_.require("all_gather", rank_);
    return client_->all_gather(tag, members, blob, deadline);
  }
  void fail(const Failure& failure) override {
    owner_.require("fail", rank_);
    client_->fail(failure);
  }
  const std::atomic<bool>& failed_flag() const override { return client_->failed_flag(); }
  std::optional<Failure> failure() const override { return client_->failure(); }
  bool has_left(int rank) const override { return client_->has_left(rank); }
  void leave(Clock::time_point deadline) override {
    owner_.require("leave", rank_);
    client_->goodbye(deadline);
    if (server_) server_->wait_until_empty(deadline);
  }

 private:
  const Owner owner_;
  const int rank_;
  std::unique_ptr<StarServer> server_;  // ends after the client, and so hears of its end
  std::unique_ptr<StarClient> client_;
};

}  // namespace

std::unique_ptr<Control> serve_star(std::vector<Member> members) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    throw Error("socketpair: " + error_text(errno));
  }
  const std::string who = fmt::format("rank 0 (pid {})", getpid());
  Member served{.socket = launch::UniqueFd(ends[0]), .process = {}, .who = who};
  Member client{.socket = launch::UniqueFd(ends[1]), .process = {}, .who = who};
  members.insert(members.begin(), std::move(served));
  const int world = static_cast<int>(members.size());
  auto server = std::make_unique<StarServer>(std::move(members));
  return std::make_unique<Star>(0, std::move(server),
                                std::make_unique<StarClient>(0, world, std::move(client)));
}

std::unique_ptr<Control> join_star(int rank, int world, Member rank_0) {
  return std::make_unique<Star>(rank, nullptr, std::make_unique<StarClient>(rank, world, std::move(rank_0)));
}

launch::UniqueFd open_process(pid_t pid) {
  // The descriptor is CLOEXEC. Old kernels and filters refuse; then the connection's end is all there is.
  return pid > 0 ? launch::UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) : launch::UniqueFd();
}

}  // namespace lockstep::transport
