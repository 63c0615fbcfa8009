// SPDX-License-Identifier: Apache-2.0
//! \file
//! What the system knows of a block device: its size, what uses it, what lies on it, and what it is called.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace forebay::emulator {

/// Where the system tells about block devices. Tests give other places.
struct device_places {
  std::string mounts = "/proc/self/mountinfo";
  std::string swaps = "/proc/swaps";
  std::string devices = "/sys/dev/block";
  std::string names = "/dev/disk/by-id";
};

bool is_block_device(std::string const& path);

struct device_shape {
  std::uint64_t bytes = 0;
  std::uint32_t block_bytes = 0;  ///< of a logical block
  bool is_protected = false;      ///< against writes, which fail only later
};

/// Throws `operation_failed` if the system does not tell.
device_shape shape_of_device(int fd);

/// What uses the device, one of its partitions, or the device that it is a partition of: "it is mounted at /mnt".
/// Empty: nothing that the system tells of.
std::string user_of_device(dev_t device, device_places const& places = {});

/// What lies on the device, by the signatures that libblkid knows: "ext4 file system", "gpt partition table". Empty:
/// nothing that it knows. Throws `operation_failed` if the device cannot be read.
std::vector<std::string> signatures_on(int fd);

/// Whether `name` is the device's name in /dev/disk/by-id, its WWN or its serial number.
bool device_has_name(dev_t device, std::string const& name, device_places const& places = {});

}  // namespace forebay::emulator
