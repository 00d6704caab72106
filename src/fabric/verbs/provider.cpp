#include <algorithm>
#include <cerrno>

#include "fabric/fabric.hpp"
#include "fabric/verbs/context.hpp"
#include "fabric/verbs/device.hpp"
#include "fabric/verbs/inventory.hpp"
#include "fabric/verbs/text.hpp"

namespace rvget::fabric {

namespace verbs {

namespace {

/// The devices that libibverbs sees.
class device_list {
public:
    static result<device_list> get() {
        int count = 0;
        errno = 0;
        auto** devices = ibv_get_device_list(&count);
        if (devices != nullptr) return device_list(devices, count);
        if (errno == ENOSYS) {
            return failure{
                device_errc::none,
                "this kernel has no RDMA support (ENOSYS: no ib_uverbs): install an RDMA "
                "NIC's driver or `modprobe ib_uverbs`, and for software RDMA `rdma link "
                "add rxe0 type rxe netdev NETDEV`; until then bytes go over TCP"};
        }
        return failure{device_errc::none, "listing RDMA devices: " + errno_text(errno) +
                                              "; see `ibv_devinfo -v` and `rdma link`"};
    }

    [[nodiscard]] std::span<ibv_device* const> devices() const noexcept {
        return {devices_.get(), static_cast<std::size_t>(count_)};
    }

private:
    struct freer {
        // Never called for null, which libibverbs would follow.
        void operator()(ibv_device** list) const noexcept { ibv_free_device_list(list); }
    };
    device_list(ibv_device** devices, int count) : devices_(devices), count_(count) {}

    std::unique_ptr<ibv_device*, freer> devices_;
    int count_;
};

class provider final : public fabric::provider {
public:
    [[nodiscard]] std::string_view name() const noexcept override { return "verbs"; }

    result<std::vector<route::device_facts>> list() override {
        auto found = device_list::get();
        if (!found) return found.error();
        std::vector<route::device_facts> all;
        for (auto* one : found->devices()) {
            owned<ibv_context, ibv_close_device> opened(ibv_open_device(one));
            auto facts =
                opened ? facts_of(opened.get()) : result<route::device_facts>(facts_unopened(one));
            // A device that does not answer is listed all the same, without ports; open() says why.
            all.push_back(facts ? std::move(*facts) : facts_unopened(one));
        }
        return all;
    }

    result<std::shared_ptr<fabric::device>> open(std::string_view device_name) override {
        auto found = device_list::get();
        if (!found) return found.error();
        std::string others;
        for (auto* one : found->devices()) {
            if (ibv_get_device_name(one) == device_name) return device::open(one);
            others += (others.empty() ? "" : ", ") + std::string(ibv_get_device_name(one));
        }
        return failure{device_errc::none, "there is no RDMA device '" + std::string(device_name) +
                                              "'; there is " + (others.empty() ? "none" : others)};
    }
};

}  // namespace

}  // namespace verbs

std::unique_ptr<provider> make_verbs_provider() { return std::make_unique<verbs::provider>(); }

}  // namespace rvget::fabric
