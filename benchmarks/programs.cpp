// A program for an NPU that measures itself. For each line of its input, a number of elements, it
// copies them to the device, runs 20 operators in a row, copies the result back, and prints seconds.
// "small" runs 3,000 calls of 16 elements, and prints microseconds of CPU of a call.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_sigmoid.h"

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

void small(aclrtStream stream) {
    constexpr int CALLS = 3000;
    aclTensor *self = tensor(device(64), 16), *out = tensor(device(64), 16);
    double start = 0;
    for (int i = -100; i < CALLS; ++i) {
        if (i == 0) start = cpu_us();
        launch(self, out, stream);
        ok(aclrtSynchronizeStream(stream));
    }
    std::printf("%f\n", (cpu_us() - start) / CALLS);
}

double chain(std::vector<float> &values, aclrtStream stream) {
    const size_t bytes = values.size() * sizeof(float);
    const auto start = std::chrono::steady_clock::now();
    void *memory[] = {device(bytes), device(bytes)};
    aclTensor *tensors[] = {tensor(memory[0], static_cast<int64_t>(values.size())),
                            tensor(memory[1], static_cast<int64_t>(values.size()))};
    ok(aclrtMemcpy(memory[0], bytes, values.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE));
    for (int i = 0; i < 20; ++i) launch(tensors[i % 2], tensors[1 - i % 2], stream);
    ok(aclrtSynchronizeStream(stream));
    ok(aclrtMemcpy(values.data(), bytes, memory[0], bytes, ACL_MEMCPY_DEVICE_TO_HOST));
    for (int i = 0; i < 2; ++i) ok(aclrtFree(memory[i])), aclDestroyTensor(tensors[i]);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main(int count, char **arguments) {
    aclrtStream stream = nullptr;
    ok(aclInit(nullptr));
    ok(aclrtSetDevice(0));
    ok(aclrtCreateStream(&stream));
    if (count > 1 && std::strcmp(arguments[1], "small") == 0) return small(stream), 0;
    for (size_t elements = 0; std::scanf("%zu", &elements) == 1;) {
        std::vector<float> values(elements, 0.5F);
        std::printf("%f\n", chain(values, stream));
        std::fflush(stdout);
    }
}
