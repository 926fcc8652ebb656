/* The types that operators' headers name, as a compiler needs them. */
#ifndef INC_EXTERNAL_ACLNN_ACLNN_BASE_H_
#define INC_EXTERNAL_ACLNN_ACLNN_BASE_H_

#include <stdbool.h>
#include <stdint.h>

typedef struct aclTensor aclTensor;
typedef struct aclScalar aclScalar;
typedef struct aclIntArray aclIntArray;
typedef struct aclFloatArray aclFloatArray;
typedef struct aclBoolArray aclBoolArray;
typedef struct aclTensorList aclTensorList;
typedef struct aclScalarList aclScalarList;
typedef struct aclOpExecutor aclOpExecutor;

typedef enum { ACL_DT_UNDEFINED = -1, ACL_FLOAT = 0 } aclDataType;
typedef int32_t aclnnStatus;
typedef void *aclrtStream;

#endif  // INC_EXTERNAL_ACLNN_ACLNN_BASE_H_
