// SPDX-License-Identifier: Apache-2.0
// pread and pwrite: a system call for each block.
#include "apps/file_io/blocking_channel.hpp"

namespace forebay::file_io {
namespace {

class pread_channel final : public host_channel {
 public:
  pread_channel(int descriptor, blocks const& memory, gpu_copies* copies)
      : host_channel(memory, copies), descriptor_(descriptor) {}

 private:
  int read(std::byte* to, std::uint64_t bytes, std::uint64_t offset_bytes) override {
    return read_whole(descriptor_, to, bytes, offset_bytes);
  }
  int write(std::byte const* from, std::uint64_t bytes, std::uint64_t offset_bytes) override {
    return write_whole(descriptor_, from, bytes, offset_bytes);
  }

  int descriptor_;
};

class pread_engine final : public engine {
 public:
  pread_engine(file const& from, blocks const& memory) : from_(from), memory_(memory) {}
  std::unique_ptr<channel> open_channel(apps::in_flight_share, gpu_copies* copies) const override {
    return std::make_unique<pread_channel>(from_.descriptor(), memory_, copies);
  }
  std::string way() const override { return "pread and pwrite"; }

 private:
  file const& from_;
  blocks const& memory_;
};

}  // namespace

std::unique_ptr<engine> open_pread(file const& from, blocks const& memory) {
  return std::make_unique<pread_engine>(from, memory);
}

}  // namespace forebay::file_io
