#include "engine/get_batch.hpp"

#include <utility>

#include "engine/consumer.hpp"
#include "engine/planted.hpp"

namespace rvget::engine {

get_batch::get_batch(consumer& c, std::vector<item> items, std::uint64_t first, answered done)
    : consumer_(c),
      items_(std::move(items)),
      first_(first),
      done_(std::move(done)),
      answers_(items_.size()) {}

get_batch::~get_batch() = default;

void get_batch::pump() {
    if (std::exchange(pumping_, true)) return;
    while (next_ < items_.size() && next_ - over_ < most_at_once) {
        const auto i = next_++;
        auto& what = items_[i];
        consumer_.get(
            what.at, what.owner, what.request,
            [self = shared_from_this(), i](transfer_answer a) { self->ended(i, std::move(a)); },
            first_ + i);
    }
    pumping_ = false;
    finish_if_over();
}

void get_batch::ended(std::size_t index, transfer_answer a) {
    if (planted(bug::double_answer) && !done_) return;  // nowhere to put it
    answers_[index] = std::move(a);
    ++over_;
    pump();
}

void get_batch::abandon(const failure& why) {
    const auto self = shared_from_this();
    const auto begun = std::exchange(next_, items_.size());
    for (auto i = begun; i < items_.size(); ++i, ++over_) {
        answers_[i].error = why;
        answers_[i].report.detail = why.detail;
    }
    for (std::size_t i = 0; i < begun; ++i) consumer_.abandon(first_ + i, why);
    finish_if_over();
}

void get_batch::finish_if_over() {
    if (over_ < items_.size() || pumping_) return;
    if (auto done = std::exchange(done_, nullptr)) done(std::move(answers_));
}

}  // namespace rvget::engine
