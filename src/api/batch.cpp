#include <future>
#include <utility>

#include "api/answers.hpp"
#include "api/node_impl.hpp"

namespace rvget {
namespace {

using engine::destination_kind;
using engine::get_batch;
using engine::transfer_answer;

template <class R>
R value_of(transfer_answer a) {
    if constexpr (std::is_same_v<R, get_into_result>)
        return {a.bytes, std::move(a.report), a.quiet};
    else
        return {std::move(a.data), std::move(a.report)};
}

/// Answers a batch exactly once: every element with `stopped` where the strand has stopped and what
/// was posted there is destroyed without having run.
template <class R>
class answer_all {
public:
    using elements = std::vector<batch_element<R>>;

    answer_all(detail::unique_function<void(error_code, elements)> f, std::size_t count)
        : once_([f = std::move(f), count](error_code ec, elements all) mutable {
              if (ec)
                  for (all.clear(); all.size() < count;) all.push_back({stopped(), {}});
              f({}, std::move(all));
          }) {}
    void operator()(std::vector<transfer_answer> answers) {
        elements all;
        all.reserve(answers.size());
        for (auto& a : answers) {
            auto error = a.error;
            all.push_back({std::move(error), value_of<R>(std::move(a))});
        }
        once_({}, std::move(all));
    }

private:
    answer_once<elements> once_;
};

}  // namespace

template <class R, class Item>
void node::impl::begin_batch(operation op, const std::vector<Item>& items, const batch_options& o,
                             destination_kind kind,
                             detail::unique_function<void(error_code, std::vector<R>)> done) {
    std::vector<get_batch::item> gets;
    gets.reserve(items.size());
    for (const auto& i : items) {
        std::span<std::byte> into;
        if constexpr (requires { i.destination; }) into = i.destination;
        get_options each{i.range.offset, i.range.length, o.deadline, o.policy};
        each.checksum = o.checksum;
        gets.push_back(
            {i.from.address, i.from.handle.owner, request_for(i.from, each, kind, into)});
    }
    const auto first = next_operation.fetch_add(items.size());
    const auto deadline = deadline_of(o.deadline);
    using value = decltype(R::value);
    runtime->post([this, op, first, deadline, gets = std::move(gets),
                   done = answer_all<value>(std::move(done), items.size())]() mutable {
        core->consumer().get_all(std::move(gets), deadline, std::move(done), op, first);
    });
}

void node::begin_get_batch(operation o, const std::vector<get_item>& items,
                           const batch_options& options, batch_callback<get_result> done) {
    impl_->begin_batch(o, items, options, destination_kind::owned, std::move(done));
}

void node::begin_get_pinned_batch(operation o, const std::vector<get_item>& items,
                                  const batch_options& options,
                                  batch_callback<get_pinned_result> done) {
    impl_->begin_batch(o, items, options, destination_kind::pinned, std::move(done));
}

void node::begin_get_into_batch(operation o, const std::vector<get_into_item>& items,
                                const batch_options& options,
                                batch_callback<get_into_result> done) {
    impl_->begin_batch(o, items, options, destination_kind::into, std::move(done));
}

namespace {

/// Runs `begin` with a callback and waits for its elements, which come whatever happens.
template <class R, class Begin>
std::vector<batch_element<R>> all_of(Begin begin) {
    auto promise = std::make_shared<std::promise<std::vector<batch_element<R>>>>();
    auto answer = promise->get_future();
    begin([promise = std::move(promise)](error_code, std::vector<batch_element<R>> all) {
        promise->set_value(std::move(all));
    });
    return answer.get();
}

}  // namespace

std::vector<batch_element<get_result>> node::get_batch(const std::vector<get_item>& items,
                                                       const batch_options& o) {
    return all_of<get_result>(
        [&](auto done) { begin_get_batch(next_operation(), items, o, std::move(done)); });
}

std::vector<batch_element<get_pinned_result>> node::get_pinned_batch(
    const std::vector<get_item>& items, const batch_options& o) {
    return all_of<get_pinned_result>(
        [&](auto done) { begin_get_pinned_batch(next_operation(), items, o, std::move(done)); });
}

std::vector<batch_element<get_into_result>> node::get_into_batch(
    const std::vector<get_into_item>& items, const batch_options& o) {
    return all_of<get_into_result>(
        [&](auto done) { begin_get_into_batch(next_operation(), items, o, std::move(done)); });
}

}  // namespace rvget
