// SPDX-License-Identifier: Apache-2.0
//! \file
//! What can be done with a real drive besides opening it: look at it, and choose which driver has it.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace forebay::drive {

/// Is told each step before it is done: what it is for, and a line for a shell that does the same. May throw, which
/// undoes the steps before.
using step_listener = std::function<void(std::string const& what, std::string const& line)>;

/// What the system tells of the controller that a URI such as `pci:0000:01:00.0` names, and what opening that URI would
/// be refused for, in the words of the refusal. Writes nothing, and opens nothing to write. Throws `refused_input` if
/// there is no NVMe controller. docs/reference/json.md has the keys. Thread-safe.
nlohmann::json inspect_real_drive(std::string const& uri);

/// All NVMe controllers, each as `inspect_real_drive` has it, and all GPUs of NVIDIA. `root` is the folder below which
/// the system's files are looked for; empty: they are where they should be. Thread-safe.
nlohmann::json inspect_real_drives(std::string const& root);

/// Takes a controller from the system's driver and gives it to `vfio-pci`, where it stays when this process ends. What
/// lies on it is not touched. With `dry_run` does all checks, tells the steps, and does none. Throws `refused_input`
/// for what opening the drive with `access=vfio` to read is refused for, before anything is changed; and
/// `operation_failed`, once it has undone what was done. Thread-safe.
nlohmann::json attach_real_drive(std::string const& uri, bool dry_run, step_listener const& tell);

/// Lets the system choose the driver again, and waits until `nvme` has brought the controller up. Throws
/// `refused_input` if a program uses the drive or another driver than `vfio-pci` has it; and `operation_failed`, once
/// it has undone what was done. Thread-safe.
nlohmann::json detach_real_drive(std::string const& uri, bool dry_run, step_listener const& tell);

}  // namespace forebay::drive
