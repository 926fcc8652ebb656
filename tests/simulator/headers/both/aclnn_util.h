/* 公共宏: no function stands here; ACLNN_API aclnnStatus aclnnNothing(int x); looks like one */
#ifndef OP_API_INC_ACLNN_UTIL_H_
#define OP_API_INC_ACLNN_UTIL_H_

#ifndef ACLNN_API
#define ACLNN_API __attribute__((visibility("default")))
#endif

#ifndef ACL_DEPRECATED_MESSAGE
#define ACL_DEPRECATED_MESSAGE(message) __attribute__((deprecated(message)))
#endif

#define ACLNN_DECLARE_NOTHING(name)                 \
    ACLNN_API aclnnStatus name##GetWorkspaceSize(   \
        uint64_t *workspaceSize, aclOpExecutor **executor);

#endif  // OP_API_INC_ACLNN_UTIL_H_
