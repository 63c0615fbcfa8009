// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/memory/link_speed.hpp"

#include "forebay/error.hpp"

namespace forebay::memory {

std::vector<link_speed> const& link_speeds() {
  static std::vector<link_speed> const speeds = [] {
    std::vector<link_speed> all;
    double const lane_bytes_per_second[] = {8e9 / 8 * 128 / 130, 16e9 / 8 * 128 / 130, 32e9 / 8 * 128 / 130,
                                            64e9 / 8 * 242 / 256};
    for (int generation = 3; generation <= 6; ++generation) {
      for (int const lanes : {4, 8, 16}) {
        all.push_back({"gen" + std::to_string(generation) + "x" + std::to_string(lanes),
                       lane_bytes_per_second[generation - 3] * lanes});
      }
    }
    return all;
  }();
  return speeds;
}

link_speed const& find_link_speed(std::string const& name) {
  std::string known;
  for (link_speed const& speed : link_speeds()) {
    if (speed.name == name) return speed;
    known += (known.empty() ? "" : ", ") + speed.name;
  }
  throw refused_input("link", name, "use one of " + known + ", or leave it out");
}

}  // namespace forebay::memory
