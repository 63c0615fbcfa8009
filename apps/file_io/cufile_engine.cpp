// SPDX-License-Identifier: Apache-2.0
#include "apps/file_io/cufile_engine.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "apps/file_io/blocking_channel.hpp"
#include "apps/file_io/cufile_api.hpp"
#include "forebay/error.hpp"

namespace forebay::file_io {
namespace {

constexpr int errors_begin = 5000;  // of the library; those below are errno's

std::string text_of(int error) {
  return error < errors_begin ? std::strerror(error) : fmt::format("cuFile error {}", error);
}

std::string text_of(cufile::outcome const& o) {
  return o.cuda_error == 0 ? text_of(o.error) : fmt::format("{}, CUDA error {}", text_of(o.error), o.cuda_error);
}

/// The driver, the file and the memory, open in one of the two modes. Throws `operation_failed`.
class session {
 public:
  session(cufile::api const& api, bool compat, file const& from, blocks const& memory) : api_(api), memory_(memory) {
    // The file of its settings may say otherwise. Only what is set before the driver is opened counts.
    check(api_.set_parameter(cufile::allow_compat_mode, compat), "cuFileSetParameterBool");
    if (!compat) check(api_.set_parameter(cufile::force_compat_mode, false), "cuFileSetParameterBool");
    check(api_.driver_open(), "cuFileDriverOpen");
    try {
      open(from);
    } catch (...) {
      close();
      throw;
    }
  }
  session(session const&) = delete;
  session& operator=(session const&) = delete;
  ~session() { close(); }

  /// Returns 0 or why it failed.
  int move(std::uint32_t slot, transfer const& what) const {
    auto const bytes = static_cast<std::size_t>(memory_.block_bytes());
    auto const at = static_cast<off_t>(what.offset_bytes), in_buffer = static_cast<off_t>(slot * bytes);
    ssize_t const moved = what.is_write ? api_.write(handle_, memory_.end(0), bytes, at, in_buffer)
                                        : api_.read(handle_, memory_.end(0), bytes, at, in_buffer);
    if (moved == -1) return errno;
    if (moved < 0) return static_cast<int>(-moved);
    return static_cast<std::size_t>(moved) == bytes ? 0 : EIO;
  }

 private:
  static void check(cufile::outcome const& o, char const* what) {
    if (o.error != 0) throw operation_failed(fmt::format("{}: {}", what, text_of(o)));
  }

  void open(file const& from) {
    cufile::descriptor about{};
    about.fd = from.descriptor();
    check(api_.register_handle(&handle_, &about), "cuFileHandleRegister");
    check(api_.register_buffer(memory_.end(0), memory_.size_bytes(), 0), "cuFileBufRegister");
    registered_ = true;
    // A file system that the driver cannot serve shows only here.
    if (int const error = move(0, {})) throw operation_failed(fmt::format("cuFileRead: {}", text_of(error)));
  }

  void close() {
    if (registered_) api_.deregister_buffer(memory_.end(0));
    if (handle_ != nullptr) api_.deregister_handle(handle_);
    api_.driver_close();
  }

  cufile::api const& api_;
  blocks const& memory_;
  cufile::handle handle_ = nullptr;
  bool registered_ = false;
};

class cufile_channel final : public blocking_channel {
 public:
  explicit cufile_channel(session const& with) : with_(with) {}

 private:
  int move(std::uint32_t slot, transfer const& what) override { return with_.move(slot, what); }

  session const& with_;
};

class cufile_engine final : public engine {
 public:
  cufile_engine(std::string const& library, file const& from, blocks const& memory)
      : api_(library), on_gpu_(memory.copies()) {
    try {
      session_.emplace(api_, false, from, memory);
    } catch (operation_failed const& why) {
      why_compat_ = why.what();
      session_.emplace(api_, true, from, memory);
    }
  }
  std::unique_ptr<channel> open_channel(apps::in_flight_share, gpu_copies*) const override {
    return std::make_unique<cufile_channel>(*session_);
  }
  std::string way() const override {
    return why_compat_.empty() ? "cuFile, direct to and from the GPU"
                               : fmt::format("cuFile in compatibility mode, through host memory ({})", why_compat_);
  }
  std::string cufile() const override { return why_compat_.empty() ? "direct" : "compat"; }
  std::string text(int error) const override { return text_of(error); }

 private:
  cufile::api api_;
  std::unique_ptr<gpu_copies> on_gpu_;  ///< keeps the GPU current for the session, which is closed on this thread too
  std::optional<session> session_;
  std::string why_compat_;
};

}  // namespace

std::unique_ptr<engine> open_cufile_of(std::string const& library, file const& from, blocks const& memory) {
  try {
    return std::make_unique<cufile_engine>(library, from, memory);
  } catch (operation_failed const& why) {
    throw refused_input("--ioengine", "cufile", why.what());
  }
}

std::unique_ptr<engine> open_cufile(file const& from, blocks const& memory) {
  return open_cufile_of("libcufile.so.0", from, memory);
}

}  // namespace forebay::file_io
