// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/drive/drive.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "emulated/new_file.hpp"
#include "emulated/specification.hpp"
#include "emulator/block_device.hpp"
#include "emulator/opened_file.hpp"
#include "forebay/detail/drive/uri.hpp"
#include "forebay/error.hpp"
#include "schemes.hpp"

namespace forebay::drive {

std::unique_ptr<device> open(std::string const& text, open_options const& options) {
  uri const from = uri::parse(text);
  auto opened = find_scheme(from.scheme())->open(from, options);
  if (opened == nullptr)
    throw operation_failed(
        fmt::format("the function that opens drives of the scheme {} returned none for {}", from.scheme(), text));
  return opened;
}

namespace {

/// A drive in a file, with a size that its URI gives.
specification specify_file(std::string const& text) {
  uri const from = uri::parse(text);
  if (from.scheme() != "emulated" && from.scheme() != "file")
    throw refused_input("drive", text,
                        "only a drive in a file can be made; use file:PATH, or emulated: with backing=file");
  specification const what = specify(from, 0);
  if (!what.in_file())
    throw refused_input("backing", to_string(what.bytes),
                        "only a drive with backing=file has a file to make; add backing=file and path=FILE");
  if (what.size_bytes == 0) throw refused_input("size", "", "give the size of the file to make, as in size=1G");
  return what;
}

}  // namespace

void create(std::string const& text) {
  specification const what = specify_file(text);
  new_file(what.path, what.size_bytes, file_space::sparse).keep();
}

void grow(std::string const& text) {
  specification const what = specify_file(text);
  if (what.creates) throw refused_input("create", "1", "a file that grows exists already; leave create out");
  if (emulator::is_block_device(what.path))
    throw refused_input("path", what.path, "is a block device, whose size is its own; give the path of a file");
  emulator::opened_file const file({.path = what.path, .block_bytes = what.lba_bytes});
  if (what.size_bytes < file.file_bytes())
    throw refused_input("size", std::to_string(what.size_bytes),
                        fmt::format("{} has {} bytes, and no drive is made shorter; give at least as many", what.path,
                                    file.file_bytes()));
  if (ftruncate(file.fd(), static_cast<off_t>(what.size_bytes)) == 0) return;
  throw operation_failed(
      fmt::format("cannot make {} longer, to {} bytes: {}", what.path, what.size_bytes, std::strerror(errno)));
}

}  // namespace forebay::drive
