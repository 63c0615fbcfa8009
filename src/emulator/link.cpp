// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/emulator/link.hpp"

#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace forebay::emulator {

std::shared_ptr<memory::allocation> shared_link(memory::resource& where, memory::link_speed const& speed) {
  static std::mutex mutex;
  static auto* const links = new std::map<std::pair<memory::resource*, std::string>, std::weak_ptr<memory::allocation>>;
  std::lock_guard const lock(mutex);
  auto& known = (*links)[{&where, speed.name}];
  auto link = known.lock();
  if (!link) known = link = std::make_shared<memory::allocation>(where, 2 * sizeof(std::uint64_t), 128);
  return link;
}

}  // namespace forebay::emulator
