# lockstep_flags: what every target of ours is compiled with. It is linked privately, so that users do not inherit it.
add_library(lockstep_flags INTERFACE)
target_compile_options(lockstep_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Werror=invalid-pch)
# Options are set by designated initialisers; what is left out has its default.
target_compile_options(lockstep_flags INTERFACE -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(lockstep_flags INTERFACE -Wno-restrict)  # false alarms on std::string + "text" (GCC bug 105651)
endif()
if(LOCKSTEP_PORTABLE)
  target_compile_definitions(lockstep_flags INTERFACE LOCKSTEP_PORTABLE)
endif()
if(LOCKSTEP_SANITIZE)
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  # For the few places that go another way there: GCC and clang tell of it by different means.
  if(LOCKSTEP_SANITIZE MATCHES "address")
    add_compile_definitions(LOCKSTEP_ASAN)
  elseif(LOCKSTEP_SANITIZE MATCHES "thread")
    add_compile_definitions(LOCKSTEP_TSAN)
  endif()
  # A fifth of the time to compile goes into these three, and ASan sees most of what they see.
  add_compile_options(-fno-sanitize=null,alignment,vptr)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
endif()
