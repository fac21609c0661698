#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/unique_fd.h"
#include "transport/io.h"

namespace lockstep::transport {

/// Sends `bytes` on a unix socket and `descriptors` with the first of them: at most 253, and bytes must not
/// be empty.
Delivery send_with_descriptors(int socket, std::string_view bytes, const std::vector<int>& descriptors,
                               Deadline deadline);

/// What recv() returns, without waiting. Descriptors that came along are appended, closed on exec. Throws
/// Error if some were lost, because this process has too many.
ssize_t receive_with_descriptors(int socket, char* bytes, std::size_t size,
                                 std::vector<launch::UniqueFd>& descriptors);

/// One descriptor a rank, some of them empty, in as many messages as it takes.
Delivery send_table(int socket, const std::vector<launch::UniqueFd>& table, Deadline deadline);
/// Fills `table`, whose size is the sender's. Throws Error if what came is no table.
Delivery receive_table(int socket, std::vector<launch::UniqueFd>& table, Deadline deadline);

}  // namespace lockstep::transport
