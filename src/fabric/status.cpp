#include "fabric/fabric.hpp"

namespace rvget::fabric {

std::string_view to_string(completion_status status) noexcept {
    switch (status) {
        case completion_status::success:
            return "success";
        case completion_status::local_length:
            return "local length error";
        case completion_status::local_queue_pair_operation:
            return "local queue pair operation error";
        case completion_status::local_protection:
            return "local protection error";
        case completion_status::flushed:
            return "work request flushed";
        case completion_status::memory_window_bind:
            return "memory window bind error";
        case completion_status::bad_response:
            return "bad response";
        case completion_status::local_access:
            return "local access error";
        case completion_status::remote_invalid_request:
            return "remote invalid request";
        case completion_status::remote_access:
            return "remote access error";
        case completion_status::remote_operation:
            return "remote operation error";
        case completion_status::retry_exceeded:
            return "transport retry counter exceeded";
        case completion_status::rnr_retry_exceeded:
            return "receiver-not-ready retries exceeded";
        case completion_status::false_success:
            return "success not trusted: the queue pair is in error";
        case completion_status::other:
            break;
    }
    return "other error";
}

}  // namespace rvget::fabric
