#include "fabric/mlx5/device.hpp"

#include "base/log.hpp"
#include "fabric/mlx5/completion_queue.hpp"
#include "fabric/mlx5/queue_pair.hpp"

namespace rvget::fabric::mlx5 {

namespace {

void log_path(const fabric::device& d) {
    const auto path = d.fast_path();
    log(log_level::info, "fast_path=" + path.name + " device=" + d.facts().name +
                             (path.detail.empty() ? "" : " cause=" + quoted(path.detail)));
}

std::string text_of(const failure& f) { return f.detail.empty() ? f.code.message() : f.detail; }

}  // namespace

std::shared_ptr<fabric::device> decorate(std::shared_ptr<fabric::device> beneath,
                                         mlx5_choice choice) {
    auto opened = std::dynamic_pointer_cast<verbs::device>(beneath);
    if (!opened || choice == mlx5_choice::off) return beneath;
    const auto without = [&](std::string why) {
        return std::make_shared<device>(opened, nullptr,
                                        fabric::fast_path{.detail = std::move(why)});
    };
    std::string why;
    const auto* direct = library::find(why);
    if (direct == nullptr || !direct->supports(opened->opened()->handle->device)) {
        // Nobody expects it of another device, unless it was asked for by name.
        if (choice == mlx5_choice::automatic) return beneath;
        return without(direct == nullptr ? why : "this is no device of libmlx5");
    }
    if (choice == mlx5_choice::automatic) {
        return without("the direct path has never run on a ConnectX; RVGET_MLX5=verbs_qp uses it");
    }
    fabric::fast_path path{.name = "mlx5"};
    if (choice == mlx5_choice::devx) {
        path.detail = "queue pairs made by DEVX are not built yet: verbs_qp is used";
    }
    std::shared_ptr<device> made = std::make_shared<device>(opened, direct, path);
    if (auto tried = made->try_out(); !tried) made = without(text_of(tried.error()));
    log_path(*made);
    return made;
}

result<std::shared_ptr<fabric::completion_queue>> device::create_completion_queue(
    std::uint32_t entries) {
    auto other = beneath_->create_completion_queue(entries);
    if (!other || direct_ == nullptr) return other;
    auto both = direct_queue(*other, entries);
    if (both) return std::shared_ptr<fabric::completion_queue>(std::move(*both));
    log(log_level::warning, "fast_path=verbs device=" + beneath_->facts().name +
                                " cause=" + quoted(text_of(both.error())));
    return other;
}

result<std::shared_ptr<completion_queue>> device::direct_queue(
    const std::shared_ptr<fabric::completion_queue>& other, std::uint32_t entries) const {
    return completion_queue::make(*direct_, beneath_->opened(),
                                  std::static_pointer_cast<verbs::completion_queue>(other),
                                  entries);
}

result<std::unique_ptr<fabric::queue_pair>> device::create_queue_pair(
    std::shared_ptr<fabric::completion_queue> completions, std::uint8_t port,
    const queue_pair_options& options) {
    const auto both = std::dynamic_pointer_cast<mlx5::completion_queue>(completions);
    if (!both) return beneath_->create_queue_pair(std::move(completions), port, options);
    if (!options.binds) {
        for (const auto& p : beneath_->facts().ports) {
            if (p.number != port) continue;
            auto made = mlx5::queue_pair::make(*direct_, beneath_->opened(), both, p, options);
            if (made) return made;
            log(log_level::warning, "fast_path=verbs device=" + beneath_->facts().name +
                                        " cause=" + quoted(text_of(made.error())));
        }
    }
    both->use_other();
    return beneath_->create_queue_pair(both->other(), port, options);
}

result<void> device::try_out() {
    const auto other = beneath_->create_completion_queue(1);
    if (!other) return other.error();
    auto queue = direct_queue(*other, 1);
    if (!queue) return queue.error();
    auto pair = mlx5::queue_pair::make(
        *direct_, beneath_->opened(), *queue,
        beneath_->facts().ports.empty() ? route::port_facts{} : beneath_->facts().ports.front(),
        {.send_requests = 1, .binds = false});
    if (!pair) return pair.error();
    return {};
}

}  // namespace rvget::fabric::mlx5
