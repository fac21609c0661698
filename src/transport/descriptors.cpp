#include "transport/descriptors.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "lockstep/error.h"

namespace lockstep::transport {

namespace {

constexpr std::size_t kMostAtOnce = 253;  // SCM_MAX_FD of the kernel

/// A message of one piece of bytes, with room for descriptors.
struct DescriptorMessage {
  iovec piece;
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int) * kMostAtOnce)] = {};
  msghdr header = {};

  DescriptorMessage(char* bytes, std::size_t size, std::size_t room_bytes)
      : piece{.iov_base = bytes, .iov_len = size} {
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    if (room_bytes == 0) return;
    header.msg_control = room;
    header.msg_controllen = room_bytes;
  }
  DescriptorMessage(const DescriptorMessage&) = delete;
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;
};

void put_descriptors(DescriptorMessage& message, const std::vector<int>& descriptors) {
  if (descriptors.empty()) return;
  cmsghdr* const part = CMSG_FIRSTHDR(&message.header);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int) * descriptors.size());
  std::memcpy(CMSG_DATA(part), descriptors.data(), sizeof(int) * descriptors.size());
}

void take_descriptors(DescriptorMessage& message, std::vector<launch::UniqueFd>& descriptors) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message.header); part != nullptr;
       part = CMSG_NXTHDR(&message.header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    std::vector<int> found(count);
    std::memcpy(found.data(), CMSG_DATA(part), sizeof(int) * count);
    for (const int fd : found) descriptors.emplace_back(fd);
  }
}

}  // namespace

Delivery send_with_descriptors(int socket, std::string_view bytes, const std::vector<int>& descriptors,
                               Deadline deadline) {
  Backoff backoff(deadline);
  for (;;) {
    const std::size_t room_bytes = descriptors.empty() ? 0 : CMSG_SPACE(sizeof(int) * descriptors.size());
    DescriptorMessage message(const_cast<char*>(bytes.data()), bytes.size(), room_bytes);
    put_descriptors(message, descriptors);
    const ssize_t sent = sendmsg(socket, &message.header, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return send_all(socket, bytes.substr(static_cast<std::size_t>(sent)), deadline);
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(socket, POLLOUT, deadline)) return Delivery::kTimeout;
    } else if (errno == ETOOMANYREFS) {  // of all that are on their way between this user's processes
      if (!backoff.wait()) return Delivery::kTimeout;
    } else if (errno == EBADF) {
      throw UsageError("a descriptor to be passed to the other ranks is not open");
    } else {
      return Delivery::kClosed;
    }
  }
}

ssize_t receive_with_descriptors(int socket, char* bytes, std::size_t size,
                                 std::vector<launch::UniqueFd>& descriptors) {
  for (;;) {
    DescriptorMessage message(bytes, size, sizeof(DescriptorMessage::room));
    const ssize_t got = recvmsg(socket, &message.header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return got;
    take_descriptors(message, descriptors);
    if ((message.header.msg_flags & MSG_CTRUNC) != 0) {
      throw Error("descriptors that came from another rank were lost; hint: raise ulimit -n");
    }
    return got;
  }
}

Delivery send_table(int socket, const std::vector<launch::UniqueFd>& table, Deadline deadline) {
  for (std::size_t first = 0; first < table.size(); first += kMostAtOnce) {
    const std::size_t end = std::min(first + kMostAtOnce, table.size());
    std::string is_there;
    std::vector<int> descriptors;
    for (std::size_t i = first; i < end; ++i) {
      is_there += static_cast<char>(static_cast<bool>(table[i]));
      if (table[i]) descriptors.push_back(table[i].get());
    }
    const Delivery delivery = send_with_descriptors(socket, is_there, descriptors, deadline);
    if (delivery != Delivery::kDone) return delivery;
  }
  return Delivery::kDone;
}

Delivery receive_table(int socket, std::vector<launch::UniqueFd>& table, Deadline deadline) {
  std::string is_there(table.size(), '\0');
  std::vector<launch::UniqueFd> descriptors;
  for (std::size_t have = 0; have < table.size();) {
    const ssize_t got =
        receive_with_descriptors(socket, is_there.data() + have, table.size() - have, descriptors);
    if (got > 0) {
      have += static_cast<std::size_t>(got);
    } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (!wait_for(socket, POLLIN, deadline)) return Delivery::kTimeout;
    } else {
      return Delivery::kClosed;
    }
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (is_there[i] == 0) continue;
    if (next == descriptors.size()) break;
    table[i] = std::move(descriptors[next++]);
  }
  const auto expected = static_cast<std::size_t>(std::count(is_there.begin(), is_there.end(), '\1'));
  if (next != descriptors.size() || next != expected) {
    throw Error(fmt::format("{} descriptors came from rank 0, expected {}", descriptors.size(), expected));
  }
  return Delivery::kDone;
}

}  // namespace lockstep::transport
