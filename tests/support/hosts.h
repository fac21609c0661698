#pragma once

#include <string>
#include <vector>

#include "launch/unique_fd.h"

namespace lockstep::test {

/// Hosts on a network of their own: each is a network namespace whose `eth0` is joined to one switch. Nothing
/// of it is seen from outside: no namespace has a name, and the switch, a bridge, lives in one of its own. A
/// namespace is held by this object's descriptor and by the processes in it, so the kernel removes all of it
/// with the last of them, however they end.
///
/// Processes of all hosts see the same files, process ids and host name. Whoever is not root becomes root of
/// a user namespace of its own when it enters a host.
class Hosts {
 public:
  struct Options {
    int count = 2;
    /// Of every link in each direction, as `tc` writes it ("1gbit", "100mbit"); as fast as it goes if empty.
    std::string rate = {};
    /// What may pass at once before the rate holds. Senders leave packets of 64 KiB to their card to split;
    /// with room for fewer than two of them a link of 1gbit carries a quarter less.
    std::string burst = "128kb";
    /// How long a packet waits in the link's queue at most; those that would wait longer are lost.
    std::string latency = "50ms";
  };

  /// Throws std::runtime_error if the machine does not allow it.
  explicit Hosts(const Options& options);
  /// Why hosts cannot be made on this machine; empty if they can. For GTEST_SKIP.
  static const std::string& why_not();

  int count() const { return static_cast<int>(networks_.size()); }
  /// "10.77.0.1" is host 0's; a network of its own needs no free one.
  static std::string address(int host);
  /// Moves this process to a host, for good. It must have one thread: one that was just forked.
  void enter(int host) const;
  /// A TCP socket of that host, for a process that is not on it: a socket stays where it was made.
  launch::UniqueFd socket(int host) const;
  /// The host's namespace as a file, for `nsenter --net=`; there as long as this process.
  std::string path(int host) const;

  /// Pulls the host's cable out at the switch: its link stays up, but packets are lost in silence.
  void cut(int host) const;
  /// Plugs it in again.
  void mend(int host) const;
  /// Packets between these two alone are lost in silence, for good.
  void cut_between(int one, int other) const;

 private:
  void enter_network(int network) const;
  launch::UniqueFd make_network() const;
  void set_up(int network, const char* program, const std::string& lines) const;

  launch::UniqueFd users_;  ///< The user namespace that owns the others; none for root.
  launch::UniqueFd switch_;
  std::vector<launch::UniqueFd> networks_;
};

}  // namespace lockstep::test
