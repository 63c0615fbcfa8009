// SPDX-License-Identifier: Apache-2.0
//! \file
//! Switching between stacks on one OS thread, and telling the sanitizers.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(FOREBAY_SIMT_TSAN)
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(char const* file, int line);
void AnnotateIgnoreReadsEnd(char const* file, int line);
void AnnotateIgnoreWritesBegin(char const* file, int line);
void AnnotateIgnoreWritesEnd(char const* file, int line);
}
#endif

namespace __cxxabiv1 {
struct __cxa_eh_globals;
extern "C" __cxa_eh_globals* __cxa_get_globals() noexcept;
}  // namespace __cxxabiv1

namespace forebay::simt::detail {

#if defined(FOREBAY_SIMT_TSAN)
/// While an object of this class lives, ThreadSanitizer ignores the reads and writes of this thread: those of the
/// executor's own data, which the lanes of a run share without synchronising. The executor's files are not
/// instrumented, but they call instrumented code: interceptors such as memcpy, and inline functions of which the linker
/// kept another file's copy.
class unobserved {
 public:
  unobserved() { begin(); }
  ~unobserved() { end(); }
  unobserved(unobserved const&) = delete;
  unobserved& operator=(unobserved const&) = delete;
  static void begin() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  static void end() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
};
/// Interrupts the ignoring, to run the code of a lane.
class observed {
 public:
  observed() { unobserved::end(); }
  ~observed() { unobserved::begin(); }
  observed(observed const&) = delete;
  observed& operator=(observed const&) = delete;
};
inline void tell_acquire(void* address) {
  __tsan_acquire(address);
}
inline void tell_release(void* address) {
  __tsan_release(address);
}
#else
struct unobserved {
  unobserved() {}
};
struct observed {
  observed() {}
};
inline void tell_acquire(void*) {}
inline void tell_release(void*) {}
#endif

/// The C++ runtime's state for each thread: the exceptions being handled (Itanium C++ ABI, 2.2.2).
struct exception_state {
  void* caught = nullptr;
  std::uint64_t uncaught = 0;
};

/// A stack that can be switched to, or the OS thread's own.
class context {
 public:
  using entry = void (*)(boost::context::detail::transfer_t);

  /// Makes a context that starts in `function`, which calls `arrived` first and never returns.
  void make(std::byte* stack, std::size_t bytes, entry function) {
    stack_ = stack;
    bytes_ = bytes;
    at_ = boost::context::detail::make_fcontext(stack + bytes, bytes, function);
    exceptions_ = {};
#if defined(__SANITIZE_ADDRESS__)
    // Stack frames that an earlier fiber left without unwinding are still poisoned.
    __asan_unpoison_memory_region(stack, bytes);
    fake_stack_ = nullptr;
#endif
#if defined(FOREBAY_SIMT_TSAN)
    destroy();
    tsan_ = __tsan_create_fiber(0);
#endif
  }
  /// Makes this the context of the OS thread's own stack.
  void make_own() {
    stack_ = nullptr;
    bytes_ = 0;
#if defined(FOREBAY_SIMT_TSAN)
    tsan_ = __tsan_get_current_fiber();
    own_ = true;
#endif
  }

  /// Runs `to`; returns when something switches to `from` again. `dying`: nothing will.
  static void jump(context& from, context& to, exception_state* exceptions, bool dying = false) {
    from.exceptions_ = *exceptions;
    *exceptions = to.exceptions_;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(dying ? nullptr : &from.fake_stack_, to.stack_, to.bytes_);
#else
    static_cast<void>(dying);
#endif
#if defined(FOREBAY_SIMT_TSAN)
    unobserved::end();
    __tsan_switch_to_fiber(to.tsan_, __tsan_switch_to_fiber_no_sync);
#endif
    auto const transfer = boost::context::detail::jump_fcontext(to.at_, &from);
#if defined(FOREBAY_SIMT_TSAN)
    unobserved::begin();
#endif
    arrived(transfer);
#if defined(__SANITIZE_ADDRESS__)
    finish(from, *static_cast<context*>(transfer.data));
#endif
  }
  /// Notes which context switched here.
  static void arrived(boost::context::detail::transfer_t transfer) {
    static_cast<context*>(transfer.data)->at_ = transfer.fctx;
  }
  /// The first function that a new context calls.
  static void started(context& self, boost::context::detail::transfer_t transfer) {
#if defined(FOREBAY_SIMT_TSAN)
    unobserved::begin();
#endif
    arrived(transfer);
#if defined(__SANITIZE_ADDRESS__)
    finish(self, *static_cast<context*>(transfer.data));
#else
    static_cast<void>(self);
#endif
  }

  /// Tells ThreadSanitizer that all that `self` did comes before an acquire of `object`, though `self` never runs
  /// again.
  static void tell_dropped([[maybe_unused]] context& self, [[maybe_unused]] context& own,
                           [[maybe_unused]] void* object) {
#if defined(FOREBAY_SIMT_TSAN)
    if (self.tsan_ == nullptr) return;
    __tsan_switch_to_fiber(self.tsan_, __tsan_switch_to_fiber_no_sync);
    __tsan_release(object);
    __tsan_switch_to_fiber(own.tsan_, __tsan_switch_to_fiber_no_sync);
#endif
  }

  context() = default;
  context(context const&) = delete;
  context& operator=(context const&) = delete;
  ~context() { destroy(); }

 private:
  void destroy() {
#if defined(FOREBAY_SIMT_TSAN)
    if (tsan_ != nullptr && !own_) __tsan_destroy_fiber(tsan_);
    tsan_ = nullptr;
#endif
  }
#if defined(__SANITIZE_ADDRESS__)
  static void finish(context& self, context& from) {
    void const* bottom = nullptr;
    std::size_t bytes = 0;
    __sanitizer_finish_switch_fiber(self.fake_stack_, &bottom, &bytes);
    if (from.bytes_ == 0) {
      from.stack_ = static_cast<std::byte*>(const_cast<void*>(bottom));
      from.bytes_ = bytes;
    }
  }
#endif

  boost::context::detail::fcontext_t at_ = nullptr;
  std::byte* stack_ = nullptr;
  std::size_t bytes_ = 0;
  exception_state exceptions_;
  void* fake_stack_ = nullptr;
  void* tsan_ = nullptr;
  bool own_ = false;
};

/// The calling OS thread's exception state. Constant for a thread, so an executor asks once.
inline exception_state* thread_exceptions() {
  return reinterpret_cast<exception_state*>(__cxxabiv1::__cxa_get_globals());
}

}  // namespace forebay::simt::detail
