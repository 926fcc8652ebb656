// Does what its first argument says, and prints what it found.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_log.h"
#include "aclnnop/aclnn_sigmoid.h"

namespace {

int ok(int status) {
    if (status == 0) return 0;
    const char *text = aclGetRecentErrMsg();
    std::printf("%d %s\n", status, text == nullptr ? "" : text);
    std::exit(9);
}

void *device(size_t bytes, const void *values = nullptr) {
    void *memory = nullptr;
    ok(aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    if (values != nullptr) ok(aclrtMemcpy(memory, bytes, values, bytes, ACL_MEMCPY_HOST_TO_DEVICE));
    return memory;
}

aclTensor *tensor(void *memory, std::vector<int64_t> shape, aclDataType dtype = ACL_FLOAT) {
    return aclCreateTensor(shape.data(), shape.size(), dtype, nullptr, 0, ACL_FORMAT_ND,
                           shape.data(), shape.size(), memory);
}

aclrtStream begin() {
    aclrtStream stream = nullptr;
    ok(aclInit(nullptr));
    ok(aclrtSetDevice(0));
    ok(aclrtCreateStream(&stream));
    return stream;
}

template <class One, class Two>
void launch(One one, Two two, aclTensor *self, aclTensor *out, aclrtStream stream) {
    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    ok(one(self, out, &size, &executor));
    ok(two(size == 0 ? nullptr : device(size), size, executor, stream));
}

float read(const void *memory) {
    float value = 0;
    ok(aclrtMemcpy(&value, 4, memory, 4, ACL_MEMCPY_DEVICE_TO_HOST));
    return value;
}

float sigmoid(float value, aclrtStream stream) {
    void *in = device(4, &value), *to = device(4);
    aclTensor *self = tensor(in, {1}), *out = tensor(to, {1});
    launch(aclnnSigmoidGetWorkspaceSize, aclnnSigmoid, self, out, stream);
    ok(aclrtSynchronizeStream(stream));
    const float found = read(to);
    ok(aclrtFree(in));
    ok(aclrtFree(to));
    aclDestroyTensor(self);
    aclDestroyTensor(out);
    return found;
}

void refused() {
    begin();
    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    void *memory = device(64);
    const int status = aclnnSigmoidGetWorkspaceSize(tensor(memory, {2}), tensor(memory, {3}), &size,
                                                    &executor);
    std::printf("%d %s", status, aclGetRecentErrMsg());
}

void huge() {
    begin();
    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    aclTensor *one = tensor(device(4), std::vector<int64_t>(1 << 20, 1));
    const int status = aclnnSigmoidGetWorkspaceSize(one, one, &size, &executor);
    std::printf("%d %s", status, aclGetRecentErrMsg());
}

void touches() {
    begin();
    std::printf("%f\n", *static_cast<volatile float *>(device(4)));
}

// Infinities on a stream of each mode.
void infinities() {
    const float zero = 0;
    void *in = device(4, &zero), *to = device(4);
    for (const auto mode : {ACL_RT_OVERFLOW_MODE_SATURATION, ACL_RT_OVERFLOW_MODE_INFNAN}) {
        aclrtStream stream = nullptr;
        ok(aclrtSetDeviceSatMode(mode));
        ok(aclrtCreateStream(&stream));
        launch(aclnnLogGetWorkspaceSize, aclnnLog, tensor(in, {1}), tensor(to, {1}), stream);
        ok(aclrtSynchronizeStream(stream));
        std::printf("%g\n", read(to));
    }
}

void early() {
    const aclrtStream stream = begin();
    const float one = 1;
    void *in = device(4, &one), *to = device(4);
    launch(aclnnSigmoidGetWorkspaceSize, aclnnSigmoid, tensor(in, {1}), tensor(to, {1}), stream);
    ok(aclrtFree(in));
    ok(aclrtSynchronizeStream(stream));
}

void beyond() {
    const aclrtStream stream = begin();
    void *in = device(4), *to = device(4096);
    launch(aclnnSigmoidGetWorkspaceSize, aclnnSigmoid, tensor(in, {1024}), tensor(to, {1024}), stream);
    std::printf("%d\n", aclrtSynchronizeStream(stream));
}

void padding() {
    const aclrtStream stream = begin();
    const float zero = 0;
    auto *to = static_cast<float *>(device(8));
    launch(aclnnSigmoidGetWorkspaceSize, aclnnSigmoid, tensor(device(4, &zero), {2}), tensor(to, {2}), stream);
    ok(aclrtSynchronizeStream(stream));
    std::printf("%g %g\n", read(to), read(to + 1));
}

void threads() {
    begin();
    std::vector<std::thread> all;
    std::vector<int> right(8);
    for (int number = 0; number < 8; ++number) {
        all.emplace_back([number, &right] {
            aclrtStream stream = nullptr;
            ok(aclrtSetDevice(0));
            ok(aclrtCreateStream(&stream));
            for (int i = 0; i < 25; ++i) {
                const float value = static_cast<float>(number) + static_cast<float>(i) / 100;
                right[number] += std::fabs(sigmoid(value, stream) - 1 / (1 + std::exp(-value))) < 1e-6;
            }
        });
    }
    for (auto &thread : all) thread.join();
    for (const int count : right) std::printf("%d ", count);
}

// Ends while another thread copies by pinned memory of the host.
void detached() {
    begin();
    static std::atomic<int> rounds{0};
    std::thread([] {
        aclrtStream stream = nullptr;
        ok(aclrtSetDevice(0));
        ok(aclrtCreateStream(&stream));
        void *memory = device(64);
        while (true) {
            void *pinned = nullptr;
            ok(aclrtMallocHost(&pinned, 64));
            std::memset(pinned, rounds, 64);
            ok(aclrtMemcpyAsync(memory, 64, pinned, 64, ACL_MEMCPY_HOST_TO_DEVICE, stream));
            ok(aclrtMemsetAsync(memory, 64, 0, 32, stream));
            ok(aclrtMemcpyAsync(pinned, 64, memory, 64, ACL_MEMCPY_DEVICE_TO_HOST, stream));
            ok(aclrtSynchronizeStream(stream));
            const auto *found = static_cast<const unsigned char *>(pinned);
            if (found[0] != 0 || found[63] != rounds % 256) std::exit(9);
            ok(aclrtFreeHost(pinned));
            ++rounds;
        }
    }).detach();
    while (rounds < 5) std::this_thread::yield();
    std::printf("5\n");
}

void child() {
    begin();
    if (fork() == 0) {
        aclrtStream stream = nullptr;
        _exit(aclrtCreateStream(&stream) == 500000);
    }
    int status = 0;
    wait(&status);
    std::printf("%d\n", WEXITSTATUS(status));
}

void again() {
    const aclrtStream stream = begin();
    for (int i = 0; i < 3000; ++i) sigmoid(1, stream);
    void *memory = nullptr;
    std::printf("%d\n", aclrtMalloc(&memory, size_t{1} << 50, ACL_MEM_MALLOC_HUGE_FIRST));
}

// Goes on with tensors that are so large that they stay on a server.
void loops() {
    const aclrtStream stream = begin();
    void *in = device(1 << 17), *to = device(1 << 17);
    ok(aclrtMemset(in, 1 << 17, 0, 1 << 17));
    aclTensor *self = tensor(in, {1 << 15}), *out = tensor(to, {1 << 15});
    for (int i = 0; true; ++i) {
        launch(aclnnSigmoidGetWorkspaceSize, aclnnSigmoid, self, out, stream);
        ok(aclrtSynchronizeStream(stream));
        if (i == 0) std::printf("%d\n", getpid()), std::fflush(stdout);
    }
}

void sixteen_bits() {
    for (int i = 0; i < 65536; ++i) {
        const float value = aclFloat16ToFloat(static_cast<aclFloat16>(i));
        std::printf("%a %d\n", value, aclFloatToFloat16(value));
    }
    for (const float value : {1e-8F, 2.9802322e-8F, 2.98023224e-8F * 1.001F, 65519.0F, 65520.0F, 1e30F,
                              0.1F, 2049.0F, 2051.0F, 1.00048828125F, 6.1e-5F}) {
        std::printf("%a %d\n", value, aclFloatToFloat16(value));
    }
}

}  // namespace

int main(int count, char **arguments) {
    const std::map<std::string, void (*)()> known = {
        {"refused", refused}, {"huge", huge}, {"touches", touches}, {"infinities", [] { begin(), infinities(); }},
        {"early", early}, {"beyond", beyond}, {"padding", padding}, {"threads", threads}, {"child", child}, {"detached", detached},
        {"again", again}, {"sixteen_bits", sixteen_bits},
        {"runs", [] { std::printf("%g\n", sigmoid(0, begin())); }},
        {"starts", [] { std::printf("%d\n", aclInit(nullptr)); }},
        {"fails", [] { std::exit(7); }},
        {"raises", [] { std::raise(SIGTERM); }},
        {"loops", loops},
    };
    known.at(count > 1 ? arguments[1] : "runs")();
}
