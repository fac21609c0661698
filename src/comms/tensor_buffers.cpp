#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <sstream>

#include "lockstep/comms/tensors.h"
#include "lockstep/error.h"

namespace lockstep {

namespace {

std::string describe(const at::Tensor& tensor) {
  std::ostringstream text;
  text << "a tensor of shape " << tensor.sizes() << ", " << tensor.scalar_type();
  return text.str();
}

[[noreturn]] void refuse(const at::Tensor& tensor, const std::string& why, const std::string& hint) {
  throw UsageError(fmt::format("{}: {}; hint: {}", describe(tensor), why, hint));
}

DataType type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return DataType::kFloat32;
    case at::kDouble:
      return DataType::kFloat64;
    case at::kHalf:
      return DataType::kFloat16;
    case at::kBFloat16:
      return DataType::kBFloat16;
    case at::kInt:
      return DataType::kInt32;
    case at::kLong:
      return DataType::kInt64;
    case at::kByte:
      return DataType::kUInt8;
    case at::kBool:
      return DataType::kBool;
    default:
      refuse(tensor, "collectives do not know its type",
             "float32, float64, float16, bfloat16, int32, int64, uint8 and bool are known");
  }
}

}  // namespace

Buffer BufferOf<at::Tensor>::of(const at::Tensor& tensor) {
  if (!tensor.defined())
    throw UsageError("a tensor that is not defined; hint: a gradient is not there before backward()");
  if (!tensor.device().is_cpu()) {
    refuse(tensor, fmt::format("it is on {}, not on the CPU", tensor.device().str()), "move it by .cpu()");
  }
  if (tensor.layout() != at::kStrided) refuse(tensor, "it is not dense", "make it so by .to_dense()");
  if (!tensor.is_contiguous()) {
    refuse(tensor, "it is not contiguous",
           "give .contiguous(), and copy the result back if it is needed in place");
  }
  return {tensor.data_ptr(), tensor.numel(), type_of(tensor)};
}

void send_tensor(Communicator& comm, const at::Tensor& tensor, int to, int tag) {
  comm.send(tensor, to, tag);
}

at::Tensor recv_tensor(Communicator& comm, at::IntArrayRef shape, int from, at::ScalarType type, int tag) {
  at::Tensor tensor = at::empty(shape, type);
  comm.recv(tensor, from, tag);
  return tensor;
}

}  // namespace lockstep
