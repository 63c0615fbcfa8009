// SPDX-License-Identifier: Apache-2.0
// A libcufile over host memory. FAKE_CUFILE_FAILS names the function that fails unless compatibility mode is allowed.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "apps/file_io/cufile_api.hpp"

namespace cufile = forebay::file_io::cufile;

namespace {

constexpr int refused = 5008;    // CU_FILE_IO_NOT_SUPPORTED
constexpr int wrong_use = 5022;  // CU_FILE_INVALID_VALUE

bool compat_allowed = false;
bool is_open = false;
int registered_file = -1;
void const* registered_buffer = nullptr;

bool fails(char const* function) {
  char const* const named = std::getenv("FAKE_CUFILE_FAILS");
  return named != nullptr && std::strcmp(named, function) == 0 && !compat_allowed;
}

cufile::outcome outcome_of(char const* function, bool used_rightly) {
  return {fails(function) ? refused : used_rightly ? 0 : wrong_use, 0};
}

}  // namespace

extern "C" {

cufile::outcome cuFileSetParameterBool(int parameter, bool value) {
  if (parameter == cufile::allow_compat_mode) compat_allowed = value;
  return {is_open ? wrong_use : 0, 0};
}

cufile::outcome cuFileDriverOpen() {
  cufile::outcome const result = outcome_of("cuFileDriverOpen", !is_open);
  is_open = result.error == 0;
  return result;
}

cufile::outcome cuFileDriverClose_v2() {
  bool const clean = registered_file < 0 && registered_buffer == nullptr;
  is_open = false;
  return {clean ? 0 : wrong_use, 0};
}

cufile::outcome cuFileHandleRegister(cufile::handle* to, cufile::descriptor* about) {
  cufile::outcome const result = outcome_of("cuFileHandleRegister", is_open && about->type == 1);
  if (result.error == 0) {
    registered_file = about->fd;
    *to = &registered_file;
  }
  return result;
}

void cuFileHandleDeregister(cufile::handle) {
  registered_file = -1;
}

cufile::outcome cuFileBufRegister(void const* base, std::size_t, int) {
  registered_buffer = base;
  return outcome_of("cuFileBufRegister", is_open);
}

cufile::outcome cuFileBufDeregister(void const*) {
  registered_buffer = nullptr;
  return {0, 0};
}

ssize_t cuFileRead(cufile::handle file, void* base, std::size_t bytes, off_t offset, off_t in_buffer) {
  if (fails("cuFileRead")) return -refused;
  if (base != registered_buffer || file != &registered_file) return -wrong_use;
  return pread(registered_file, static_cast<char*>(base) + in_buffer, bytes, offset);
}

ssize_t cuFileWrite(cufile::handle file, void const* base, std::size_t bytes, off_t offset, off_t in_buffer) {
  if (base != registered_buffer || file != &registered_file) return -wrong_use;
  return pwrite(registered_file, static_cast<char const*>(base) + in_buffer, bytes, offset);
}
}
