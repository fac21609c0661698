#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <torch/csrc/api/include/torch/version.h>

#include "lockstep/comms/shared_allocator.h"
#include "transport/process_arena.h"

namespace lockstep {

namespace {

// LibTorch 2 dropped this const.
#if TORCH_VERSION_MAJOR < 2
#define LOCKSTEP_ALLOCATE_CONST const
#else
#define LOCKSTEP_ALLOCATE_CONST
#endif

/// LibTorch's face of the process's arena.
class SharedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) LOCKSTEP_ALLOCATE_CONST override {
    void* const memory = bytes == 0 ? nullptr : transport::allocate_in_process_arena(bytes);
    return {memory, memory, &free_block, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
#if TORCH_VERSION_MAJOR >= 2
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
#endif

 private:
  static void free_block(void* memory) {
    if (memory != nullptr) transport::deallocate_in_process_arena(memory);
  }
};

constexpr uint8_t kPriority = 100;  // above LibTorch's own 0

}  // namespace

void use_shared_allocator(bool use) {
  static SharedAllocator* const shared = new SharedAllocator;  // tensors may outlive everything
  c10::SetCPUAllocator(use ? shared : c10::GetDefaultCPUAllocator(), kPriority);
}

}  // namespace lockstep
