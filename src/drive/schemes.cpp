// SPDX-License-Identifier: Apache-2.0
#include "schemes.hpp"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "emulated/emulated_device.hpp"
#include "files/file_extents.hpp"
#include "forebay/error.hpp"
#include "pci/pci_drive.hpp"

namespace forebay::drive {
namespace {

bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}

bool is_name(std::string const& name) {
  return !name.empty() && is_lower(name.front()) && std::all_of(name.begin(), name.end(), [](char c) {
    return is_lower(c) || (c >= '0' && c <= '9') || c == '+' || c == '.' || c == '-';
  });
}

/// Thread-safe.
class scheme_table {
 public:
  scheme_table() {
    add("emulated", open_emulated, emulated_syntax());
    add("file", open_emulated, file_syntax());
    add("file-extents", files::open, files::syntax());
    add("pci", pci::open, pci::syntax());
  }

  void add(std::string const& name, open_function open, scheme_syntax syntax) {
    if (!is_name(name)) {
      throw refused_input("scheme", name,
                          "give a name of a-z, 0-9, +, . and - that begins with a letter, as in my-drive");
    }
    if (!open) throw refused_input("open", "", "give the function that opens drives of the scheme");
    for (std::string const& key : syntax.keys) {
      if (key.empty() || key.find_first_of(",=") != std::string::npos) {
        throw refused_input("key", key, "give keys that are not empty, and have no comma and no equals sign");
      }
    }
    auto added = std::make_shared<scheme const>(scheme{name, std::move(syntax), std::move(open)});
    std::lock_guard const lock(mutex_);
    if (find_locked(name) != nullptr)
      throw refused_input("scheme", name, "a scheme of this name is registered already; give another name");
    all_.push_back(std::move(added));
  }

  std::shared_ptr<scheme const> find(std::string_view name) const {
    std::lock_guard const lock(mutex_);
    return find_locked(name);
  }

  std::string names() const {
    std::lock_guard const lock(mutex_);
    std::string text;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (i != 0) text += i + 1 == all_.size() ? " or " : ", ";
      text += all_[i]->name + ":";
    }
    return text;
  }

 private:
  std::shared_ptr<scheme const> find_locked(std::string_view name) const {
    auto const found = std::find_if(all_.begin(), all_.end(), [&](auto const& known) { return known->name == name; });
    return found == all_.end() ? nullptr : *found;
  }

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<scheme const>> all_;
};

scheme_table& schemes() {
  static scheme_table all;
  return all;
}

}  // namespace

void add_scheme(std::string const& name, open_function open, scheme_syntax syntax) {
  schemes().add(name, std::move(open), std::move(syntax));
}

std::shared_ptr<scheme const> find_scheme(std::string_view name) {
  return schemes().find(name);
}

std::string known_schemes() {
  return schemes().names();
}

}  // namespace forebay::drive
