// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/emulator/controller.hpp"

#include <utility>

#include "subsystem_implementation.hpp"

namespace forebay::emulator {

class controller::implementation {
 public:
  implementation(std::shared_ptr<subsystem> of, std::uint32_t queues, memory::resource& client_memory,
                 memory::resource* gpu_memory, memory::resource* doorbell_memory)
      : shared_(std::move(of)),
        parts_(shared_->implementation_->join(queues, client_memory, gpu_memory, doorbell_memory)) {}
  ~implementation() { leave(); }
  implementation(implementation const&) = delete;
  implementation& operator=(implementation const&) = delete;

  subsystem& shared() const { return *shared_; }
  controller_parts& parts() { return *parts_; }
  bool leave() noexcept {
    if (parts_ != nullptr) let_go_ = shared_->implementation_->leave(std::move(parts_));
    return let_go_;
  }

 private:
  std::shared_ptr<subsystem> shared_;
  std::unique_ptr<controller_parts> parts_;
  bool let_go_ = false;
};

controller::controller(std::shared_ptr<subsystem> of, std::uint32_t queues, memory::resource& client_memory,
                       memory::resource* gpu_memory, memory::resource* doorbell_memory)
    : implementation_(
          std::make_unique<implementation>(std::move(of), queues, client_memory, gpu_memory, doorbell_memory)) {}
controller::controller(subsystem_options const& options, std::unique_ptr<backing_store> store,
                       memory::resource& client_memory)
    : controller(std::make_shared<subsystem>(options, std::move(store)), options.max_queues, client_memory) {}
controller::~controller() = default;

bool controller::leave() noexcept {
  return implementation_->leave();
}

driver::register_space& controller::registers() {
  return implementation_->parts().registers;
}
driver::dma_space& controller::dma() {
  return implementation_->parts().dma;
}
subsystem& controller::shared() const {
  return implementation_->shared();
}

}  // namespace forebay::emulator
