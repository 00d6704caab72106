#include <string>

#include "fabric/fabric.hpp"
#include "fabric/mlx5/device.hpp"

namespace rvget::fabric {

namespace mlx5 {

namespace {

class provider final : public fabric::provider {
public:
    explicit provider(mlx5_choice choice) : beneath_(make_verbs_provider()), choice_(choice) {}

    [[nodiscard]] std::string_view name() const noexcept override { return beneath_->name(); }
    [[nodiscard]] result<std::vector<route::device_facts>> list() override {
        return beneath_->list();
    }
    result<std::shared_ptr<fabric::device>> open(std::string_view device_name) override {
        auto opened = beneath_->open(device_name);
        if (!opened) return opened;
        return decorate(std::move(*opened), choice_);
    }

private:
    std::unique_ptr<fabric::provider> beneath_;
    mlx5_choice choice_;
};

}  // namespace

}  // namespace mlx5

std::unique_ptr<provider> make_provider(mlx5_choice choice) {
    return std::make_unique<mlx5::provider>(choice);
}

}  // namespace rvget::fabric
