#pragma once

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace lockstep::plan {

/// Allocates from huge pages where the kernel has some: what is read at far strides costs no page walk each
/// time.
template <typename T>
struct HugePages {
  using value_type = T;
  HugePages() = default;
  template <typename U>
  HugePages(const HugePages<U>&) {}
  bool operator==(const HugePages&) const = default;

  T* allocate(size_t count) {
    constexpr size_t kPage = size_t{2} << 20;
    const size_t bytes = (count * sizeof(T) + kPage - 1) / kPage * kPage;
    void* memory = std::aligned_alloc(kPage, bytes);
    if (memory == nullptr) throw std::bad_alloc();
    ::madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: small pages do as well
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t) { std::free(memory); }
};

}  // namespace lockstep::plan
