#include "softmlx5/front/trap.hpp"

#include <csignal>

#include <ucontext.h>

#include "softmlx5/front/machine.hpp"

namespace softmlx5::front {

namespace {

constexpr greg_t trap_flag = 0x100;
struct sigaction previous_fault;

void on_fault(int number, siginfo_t* info, void* raw) {
    auto* context = static_cast<ucontext_t*>(raw);
    if (machine::instance().begin_store(info->si_addr)) {
        context->uc_mcontext.gregs[REG_EFL] |= trap_flag;
        return;
    }
    // None of ours: as it would have been without us.
    ::sigaction(number, &previous_fault, nullptr);
}

void on_step(int, siginfo_t*, void* raw) {
    auto* context = static_cast<ucontext_t*>(raw);
    context->uc_mcontext.gregs[REG_EFL] &= ~trap_flag;
    machine::instance().end_store();
}

}  // namespace

void install_trap_handlers() {
    struct sigaction action {};
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    ::sigemptyset(&action.sa_mask);
    action.sa_sigaction = on_fault;
    ::sigaction(SIGSEGV, &action, &previous_fault);
    action.sa_sigaction = on_step;
    ::sigaction(SIGTRAP, &action, nullptr);
}

}  // namespace softmlx5::front
