// The socket of `npucall exec`: each thread has a connection of its own, so nobody waits for others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "acl_types.h"

namespace sim {

// Kinds of frames, as in npucall_exec/frames.py.
enum Frame : uint8_t {
    HELLO = 1,
    PLAN = 2,
    LAUNCH = 3,
    WAIT = 4,
    REACH = 5,
    FOUND = 6,
    ANSWER = 7,
};

constexpr uint32_t PROTOCOL = 2;
constexpr size_t MOST_OF_A_CALL = 8 << 20;  // half of a frame: a launch has offsets too

struct Answer {
    int32_t status = 0;
    bool launches = true;
    uint64_t workspace = 0;
    std::string text;
};

class Connection {
  public:
    // Says hello to the command, which listens under an abstract name.
    explicit Connection(const char *name);
    ~Connection();
    Connection(const Connection &) = delete;
    Connection &operator=(const Connection &) = delete;

    const Answer &welcome() const { return welcome_; }
    // The memory of the device, with the first welcome of a process; -1 with others.
    int memory() const { return memory_; }

    // Sends what was told and this, and waits for the answer.
    Answer ask(Frame kind, const std::string &payload);
    // A frame without answer. It is sent with the next question, or at once.
    void tell(Frame kind, const std::string &payload, bool at_once);

  private:
    int socket_ = -1, memory_ = -1;
    std::string told_;
    Answer welcome_;

    Answer answer();
    void receive(void *data, size_t size);
};

// Bytes of a number, little-endian.
template <class Number>
std::string bytes_of_number(Number number) {
    return std::string(reinterpret_cast<const char *>(&number), sizeof number);
}

}  // namespace sim
