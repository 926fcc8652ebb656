// The gradient of KlDiv on an Ascend NPU, as CANN's two-phase interface has it.
#include <cstdio>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_kl_div_backward.h"

#define CHECK(call)                                                      \
    do {                                                                 \
        const int status = (call);                                       \
        if (status != 0) {                                               \
            const char *text = aclGetRecentErrMsg();                     \
            std::printf("%s: %d %s\n", #call, status, text ? text : ""); \
            return 1;                                                    \
        }                                                                \
    } while (0)

struct Tensor {
    void *memory = nullptr;
    aclTensor *descriptor = nullptr;

    int create(const std::vector<float> &values, const std::vector<int64_t> &shape) {
        const size_t bytes = values.size() * sizeof(float);
        CHECK(aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
        CHECK(aclrtMemcpy(memory, bytes, values.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE));
        std::vector<int64_t> strides(shape.size(), 1);
        for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
        descriptor = aclCreateTensor(shape.data(), shape.size(), ACL_FLOAT, strides.data(), 0,
                                     ACL_FORMAT_ND, shape.data(), shape.size(), memory);
        return 0;
    }

    void release() {
        aclDestroyTensor(descriptor);
        aclrtFree(memory);
    }
};

int main() {
    aclrtStream stream;
    CHECK(aclInit(nullptr));
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtCreateStream(&stream));

    const std::vector<int64_t> shape = {2, 2};
    Tensor gradient, student, target, out;
    if (gradient.create({2, 3, 4, 5}, shape) || student.create({1, 1, 1, 1}, shape)) return 1;
    if (target.create({2, 3, 5, 8}, shape) || out.create({0, 0, 0, 0}, shape)) return 1;

    uint64_t workspace_size = 0;
    aclOpExecutor *executor = nullptr;
    CHECK(aclnnKlDivBackwardGetWorkspaceSize(gradient.descriptor, student.descriptor,
                                             target.descriptor, 0, false, out.descriptor,
                                             &workspace_size, &executor));
    void *workspace = nullptr;
    if (workspace_size > 0) {
        CHECK(aclrtMalloc(&workspace, workspace_size, ACL_MEM_MALLOC_HUGE_FIRST));
    }
    CHECK(aclnnKlDivBackward(workspace, workspace_size, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));

    std::vector<float> found(4);
    CHECK(aclrtMemcpy(found.data(), 16, out.memory, 16, ACL_MEMCPY_DEVICE_TO_HOST));
    for (const float value : found) std::printf("%g ", value);
    std::printf("\n");

    if (workspace != nullptr) aclrtFree(workspace);
    for (Tensor *tensor : {&gradient, &student, &target, &out}) tensor->release();
    CHECK(aclrtDestroyStream(stream));
    CHECK(aclrtResetDevice(0));
    return aclFinalize();
}
