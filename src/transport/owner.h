#pragma once

#include <sys/types.h>

#include <memory>
#include <string_view>
#include <utility>

namespace lockstep::transport {

/// The process that made an object. A forked child has a copy of the object, but none of the threads that
/// serve it, and its locks in any state.
class Owner {
 public:
  Owner();
  /// Whether this is that process. Costs no system call.
  bool is_here() const;
  /// Throws UsageError in a forked child.
  void require(std::string_view operation, int rank) const;

 private:
  pid_t pid_;
};

/// As std::make_shared, but a forked child never destroys the object: there it stays as it is.
template <typename T, typename... Args>
std::shared_ptr<T> make_owned(Args&&... args) {
  return {new T(std::forward<Args>(args)...), [owner = Owner()](T* object) {
            if (owner.is_here()) delete object;
          }};
}

}  // namespace lockstep::transport
