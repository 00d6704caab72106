#pragma once
// The owner's process of the Soft-RoCE suite, seen from its consumer: what owner_host and owner.cpp
// do is asked for through the directory that both hosts share.

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>

#include <boost/test/unit_test.hpp>

#include <rvget/handle.hpp>

#include "softroce/payload_sizes.hpp"

namespace rvget::test {

/// Guests cannot notify each other about a shared file, so a file is looked for, for a bounded
/// time.
inline bool appears(const std::filesystem::path& name,
                    std::chrono::seconds limit = std::chrono::seconds(120)) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!std::filesystem::exists(name)) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
}

inline std::string take(const std::filesystem::path& name) {
    BOOST_REQUIRE_MESSAGE(appears(name), name << " never appeared");
    std::stringstream text;
    text << std::ifstream(name).rdbuf();
    std::filesystem::remove(name);
    return text.str();
}

/// The owner's process, wherever it runs. One that is well serves the next test as well: touching
/// 64 MiB for the first time takes a guest seconds.
class remote_owner {
public:
    std::map<std::uint64_t, url> urls;

    /// `arguments` other than the last start's, or a process that was killed: a new one.
    void start(const std::string& arguments = {}) {
        if (running_ && arguments == arguments_) return;
        running_ = true;
        arguments_ = arguments;
        host("start " + arguments);
        std::istringstream lines(take(share() / "urls"));
        urls.clear();
        std::uint64_t size = 0;
        std::string text;
        while (lines >> size >> text) urls[size] = url::parse(text).value();
        BOOST_REQUIRE_GE(urls.size(), payload_sizes.size());
    }
    /// A new process in the place of the one that runs, which is killed.
    void restart() {
        running_ = false;
        start(arguments_);
    }
    /// Runs a command on the owner's host; returns what it printed.
    std::string run(const std::string& command) {
        host("run " + command);
        const auto output = take(share() / "host.output");
        BOOST_REQUIRE_MESSAGE(output.find("FAILED") == std::string::npos, output);
        return output;
    }
    /// Its machine ends as one without power. Nothing can be asked of it any more.
    void cut_power() {
        gone_ = true;
        host("cut-power");
    }
    /// What it warned of since this was asked last.
    std::string log() {
        std::ofstream(share() / "ask.log");
        return take(share() / "answer.log");
    }
    void signal(const std::string& name) {
        if (name == "KILL") running_ = false;
        host("signal " + name);
    }
    void exit() {
        if (!gone_) host("exit");
    }

    struct statistics {
        std::uint64_t granted = 0, released = 0, expired = 0, active = 0, slots = 0;
    };
    statistics ask(const std::string& question) {
        std::ofstream(share() / ("ask." + question));
        std::istringstream line(take(share() / ("answer." + question)));
        statistics s;
        line >> s.granted >> s.released >> s.expired >> s.active >> s.slots;
        return s;
    }
    /// The statistics once no lease is left, or after `limit` as they are: a get answers before its
    /// release has come to the owner.
    statistics settled(std::chrono::seconds limit = std::chrono::seconds(20)) {
        const auto end = std::chrono::steady_clock::now() + limit;
        auto s = ask("statistics");
        while (s.active != 0 && std::chrono::steady_clock::now() < end) s = ask("statistics");
        return s;
    }

private:
    bool running_ = false;
    bool gone_ = false;
    std::string arguments_;

    static std::filesystem::path share() { return std::getenv("RVGET_BENCH_SHARE"); }
    static void host(const std::string& request) {
        std::ofstream(share() / "host.request.new") << request << '\n';
        std::filesystem::rename(share() / "host.request.new", share() / "host.request");
        take(share() / "host.reply");
    }
};

}  // namespace rvget::test
