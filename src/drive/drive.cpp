// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/drive/drive.hpp"

#include <fmt/format.h>

#include "emulated/new_file.hpp"
#include "emulated/specification.hpp"
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

void create(std::string const& text) {
  uri const from = uri::parse(text);
  if (from.scheme() != "emulated" && from.scheme() != "file")
    throw refused_input("drive", text,
                        "only a drive in a file can be made; use file:PATH, or emulated: with backing=file");
  specification const what = specify(from, 0);
  if (!what.in_file())
    throw refused_input("backing", to_string(what.bytes),
                        "only a drive with backing=file has a file to make; add backing=file and path=FILE");
  if (what.size_bytes == 0) throw refused_input("size", "", "give the size of the file to make, as in size=1G");
  new_file(what.path, what.size_bytes, file_space::sparse).keep();
}

}  // namespace forebay::drive
