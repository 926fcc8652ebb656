// A program for an NPU that measures itself, as its first argument says. "chain": for each line of
// its input, a number of elements, it copies them to the device, runs 20 operators in a row, copies
// the result back, and prints seconds. "large": for each line, a number of elements, it runs one
// operator of two inputs that are on the device, and prints seconds. "small": runs as many calls of
// 16 elements as its second argument says, and prints microseconds of CPU of all of them.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_sigmoid.h"
#include "aclnnop/aclnn_sigmoid_backward.h"

namespace {

void ok(int status) {
    if (status == 0) return;
    std::printf("%d %s\n", status, aclGetRecentErrMsg());
    std::exit(9);
}

void *device(size_t bytes) {
    void *memory = nullptr;
    ok(aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    return memory;
}

aclTensor *tensor(void *memory, int64_t elements) {
    return aclCreateTensor(&elements, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &elements, 1,
                           memory);
}

void launch(const aclTensor *self, aclTensor *out, aclrtStream stream) {
    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    ok(aclnnSigmoidGetWorkspaceSize(self, out, &size, &executor));
    ok(aclnnSigmoid(nullptr, size, executor, stream));
}

double cpu_us() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
           static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

void small(int calls, aclrtStream stream) {
    aclTensor *self = tensor(device(64), 16), *out = tensor(device(64), 16);
    const auto run = [&](int count) {
        for (int i = 0; i < count; ++i) {
            launch(self, out, stream);
            ok(aclrtSynchronizeStream(stream));
        }
    };
    run(100);  // warm
    const double start = cpu_us();
    run(calls);
    std::printf("%f\n", cpu_us() - start);
}

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

double chain(size_t elements, aclrtStream stream) {
    std::vector<float> values(elements, 0.5F);
    const size_t bytes = values.size() * sizeof(float);
    const auto start = Clock::now();
    void *memory[] = {device(bytes), device(bytes)};
    aclTensor *tensors[] = {tensor(memory[0], static_cast<int64_t>(values.size())),
                            tensor(memory[1], static_cast<int64_t>(values.size()))};
    ok(aclrtMemcpy(memory[0], bytes, values.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE));
    for (int i = 0; i < 20; ++i) launch(tensors[i % 2], tensors[1 - i % 2], stream);
    ok(aclrtSynchronizeStream(stream));
    ok(aclrtMemcpy(values.data(), bytes, memory[0], bytes, ACL_MEMCPY_DEVICE_TO_HOST));
    for (int i = 0; i < 2; ++i) ok(aclrtFree(memory[i])), aclDestroyTensor(tensors[i]);
    return since(start);
}

double large(size_t elements, aclrtStream stream) {
    static std::map<size_t, std::vector<aclTensor *>> made;
    auto &tensors = made[elements];
    if (tensors.empty()) {
        const std::vector<float> values(elements, 0.5F);
        const size_t bytes = values.size() * sizeof(float);
        for (int i = 0; i < 3; ++i) {
            void *memory = device(bytes);
            ok(aclrtMemcpy(memory, bytes, values.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE));
            tensors.push_back(tensor(memory, static_cast<int64_t>(elements)));
        }
    }
    const auto start = Clock::now();
    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    ok(aclnnSigmoidBackwardGetWorkspaceSize(tensors[0], tensors[1], tensors[2], &size, &executor));
    ok(aclnnSigmoidBackward(nullptr, size, executor, stream));
    ok(aclrtSynchronizeStream(stream));
    return since(start);
}

}  // namespace

int main(int, char **arguments) {
    aclrtStream stream = nullptr;
    ok(aclInit(nullptr));
    ok(aclrtSetDevice(0));
    ok(aclrtCreateStream(&stream));
    const std::string asked = arguments[1];
    if (asked == "small") return small(std::atoi(arguments[2]), stream), 0;
    for (size_t elements = 0; std::scanf("%zu", &elements) == 1;) {
        std::printf("%f\n", asked == "chain" ? chain(elements, stream) : large(elements, stream));
        std::fflush(stdout);
    }
}
