#include "socket/connection.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

namespace sim {
namespace {

constexpr int ENDS_BECAUSE_LOST = 70;
constexpr size_t MOST_TOLD = 1 << 16;  // bytes that wait for a question

// As npucall/wire/headers.py.
struct Header {
    uint32_t length, call_id;
    uint8_t kind, flags;
    uint16_t metadata;
    uint32_t timeout_ms;
};
static_assert(sizeof(Header) == 16, "the header has no gaps");

// What stands before the text of an answer.
struct Told {
    Header header;
    int32_t status;
    uint32_t launches;
    uint64_t workspace;
};
static_assert(sizeof(Told) == 32, "the numbers have no gaps");

[[noreturn]] void lost() {
    std::fputs("npucall exec: the command that computes has ended, and this program with it\n",
               stderr);
    _exit(ENDS_BECAUSE_LOST);
}

}  // namespace

Connection::Connection(const char *name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path + 1, name, sizeof address.sun_path - 2);  // behind a zero: no file
    socket_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto *where = reinterpret_cast<const sockaddr *>(&address);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + std::strlen(name));
    if (socket_ < 0 || connect(socket_, where, size) != 0) lost();
    welcome_ = ask(HELLO, bytes_of_number(PROTOCOL));
}

Connection::~Connection() { close(socket_); }

Answer Connection::ask(Frame kind, const std::string &payload) {
    tell(kind, payload, true);
    return answer();
}

void Connection::tell(Frame kind, const std::string &payload, bool at_once) {
    const Header header{static_cast<uint32_t>(payload.size()), 0, kind, 0, 0, 0};
    told_.append(reinterpret_cast<const char *>(&header), sizeof header).append(payload);
    if (!at_once && told_.size() < MOST_TOLD) return;
    for (size_t sent = 0; sent < told_.size();) {
        const ssize_t now = send(socket_, told_.data() + sent, told_.size() - sent, MSG_NOSIGNAL);
        if (now < 0 && errno == EINTR) continue;
        if (now <= 0) lost();
        sent += static_cast<size_t>(now);
    }
    told_.clear();
}

Answer Connection::answer() {
    constexpr size_t NUMBERS = sizeof(Told) - sizeof(Header);
    Told told{};
    receive(&told, sizeof told);
    if (told.header.kind != ANSWER || told.header.length < NUMBERS) lost();
    Answer answer{told.status, told.launches != 0, told.workspace, ""};
    answer.text.resize(told.header.length - NUMBERS);
    receive(answer.text.data(), answer.text.size());
    return answer;
}

// A descriptor may come with the bytes.
void Connection::receive(void *data, size_t size) {
    for (size_t had = 0; had < size;) {
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
        iovec bytes{static_cast<char *>(data) + had, size - had};
        msghdr message{};
        message.msg_iov = &bytes;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        const ssize_t now = recvmsg(socket_, &message, MSG_CMSG_CLOEXEC);
        if (now < 0 && errno == EINTR) continue;
        if (now <= 0) lost();
        const cmsghdr *given = CMSG_FIRSTHDR(&message);
        if (given != nullptr && given->cmsg_type == SCM_RIGHTS) {
            std::memcpy(&memory_, CMSG_DATA(given), sizeof memory_);
        }
        had += static_cast<size_t>(now);
    }
}

}  // namespace sim
