// Makes a CPU build of torch accept tensors that say "cuda": one device, one stream, and nothing behind them.
//
// Only fake tensors, which hold no values, may live there. Autograd asks for a device guard and for hooks before it runs a node on a device; these answer
// and do nothing. Written for the torch that constraints.txt pins.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

constexpr auto kCuda = c10::DeviceType::CUDA;

c10::Device only_device() { return {kCuda, 0}; }
c10::Stream only_stream() { return c10::Stream(c10::Stream::DEFAULT, only_device()); }

struct NoOpGuard final : c10::impl::NoOpDeviceGuardImpl<kCuda> {
  c10::Device getDevice() const override { return only_device(); }
  c10::Device exchangeDevice(c10::Device) const override { return only_device(); }
  c10::Stream getStream(c10::Device) const noexcept override { return only_stream(); }
  c10::Stream getDefaultStream(c10::Device) const override { return only_stream(); }
  c10::Stream getNewStream(c10::Device, int) const override { return only_stream(); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return only_stream(); }
  // autograd records an event after a node and waits for it before the next one
  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override { *event = nullptr; }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
};

}  // namespace

namespace c10::impl {
C10_REGISTER_GUARD_IMPL(CUDA, NoOpGuard)
}

namespace at {

struct CUDAHooks final : CUDAHooksInterface {  // torch looks the hooks up by this name
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
};
REGISTER_CUDA_HOOKS(CUDAHooks)

}  // namespace at
