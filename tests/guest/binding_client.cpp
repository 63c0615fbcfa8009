// SPDX-License-Identifier: Apache-2.0
//! \file
//! Looks at a real drive, gives it to another driver, and uses it without being root:
//!   binding_client refusals URI  says what opening it to read, and to write, is refused for
//!   binding_client attach URI    gives it to vfio-pci, and says each step; attach-dry says them only
//!   binding_client detach URI    gives it back
//!   binding_client nobody URI    opens it to read, as a user that may lock memory and is not root
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>

#include "forebay/detail/drive/real.hpp"
#include "forebay/error.hpp"
#include "forebay/storage.hpp"

namespace {

namespace drive = forebay::drive;

constexpr unsigned nobody = 65534;

int say_refusals(std::string const& uri) {
  nlohmann::json const refused = drive::inspect_real_drive(uri).at("refused");
  for (char const* const key : {"read", "write"}) {
    std::printf("%s\n", refused.at(key).is_null() ? "not refused" : refused.at(key).get<std::string>().c_str());
  }
  return 0;
}

void say(std::string const& what, std::string const& line) {
  std::printf("%s: %s\n", what.c_str(), line.c_str());
}

int attach(std::string const& uri, bool dry_run) {
  nlohmann::json const done = drive::attach_real_drive(uri, dry_run, say);
  for (auto const& contents : done.at("contents")) std::printf("%s\n", contents.get<std::string>().c_str());
  return 0;
}

int open_as_nobody(std::string const& uri) {
  rlimit const limit{RLIM_INFINITY, RLIM_INFINITY};
  if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || ::setgid(nobody) != 0 || ::setuid(nobody) != 0) {
    std::perror("cannot become another user");
    return 1;
  }
  forebay::storage const opened({.drives = {uri}, .device = "cpu", .read_only = true});
  std::printf("opened: %lu bytes\n", opened.size_bytes());
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  std::string const what = count == 3 ? arguments[1] : "", uri = count == 3 ? arguments[2] : "";
  try {
    if (what == "refusals") return say_refusals(uri);
    if (what == "attach" || what == "attach-dry") return attach(uri, what == "attach-dry");
    if (what == "detach") return drive::detach_real_drive(uri, false, say), 0;
    if (what == "nobody") return open_as_nobody(uri);
  } catch (forebay::refused_input const& refused) {
    std::printf("%s\n", refused.what());
    return 2;
  } catch (std::exception const& failed) {
    std::printf("%s\n", failed.what());
    return 1;
  }
  std::puts("usage: binding_client refusals|attach|attach-dry|detach|nobody URI");
  return 2;
}
