#include "comms/copy.h"

#include <cstring>

#include "comms/kernels.h"

namespace lockstep::comms {

void copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0 || to == from) return;
  if (bytes < kLeastStreamedBytes || kernels().stream == nullptr) {
    std::memcpy(to, from, bytes);
    return;
  }
  kernels().stream(to, from, bytes);
  kernels().finish_streams();
}

}  // namespace lockstep::comms
