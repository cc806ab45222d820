/* Types of the C API. Structures are packed to 4 bytes: their layout is part of the ABI. */
#ifndef FDB_C_TYPES_H
#define FDB_C_TYPES_H
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct FDB_future FDBFuture;
typedef struct FDB_result FDBResult;
typedef struct FDB_cluster FDBCluster;
typedef struct FDB_database FDBDatabase;
typedef struct FDB_tenant FDBTenant;
typedef struct FDB_transaction FDBTransaction;

typedef int fdb_error_t;
typedef int fdb_bool_t;

/* Called once, when a future is ready. */
typedef void (*FDBCallback)(FDBFuture* future, void* callback_parameter);

/* There never were cluster options. */
typedef enum { FDB_CLUSTER_OPTION_DUMMY_DO_NOT_USE = -1 } FDBClusterOption;

#pragma pack(push, 4)

typedef struct key {
    const uint8_t* key;
    int key_length;
} FDBKey;

typedef struct keyvalue {
    const uint8_t* key;
    int key_length;
    const uint8_t* value;
    int value_length;
} FDBKeyValue;

typedef struct keyrange {
    const uint8_t* begin_key;
    int begin_key_length;
    const uint8_t* end_key;
    int end_key_length;
} FDBKeyRange;

typedef struct keyselector {
    FDBKey key;
    fdb_bool_t orEqual;
    int offset;
} FDBKeySelector;

/* The read that a row of a mapped range read led to, and its rows. */
typedef struct getrangereqandresult {
    FDBKeySelector begin;
    FDBKeySelector end;
    FDBKeyValue* data;
    int m_size, m_capacity;
} FDBGetRangeReqAndResult;

typedef struct mappedkeyvalue {
    FDBKey key;
    FDBKey value;
    FDBGetRangeReqAndResult getRange;
    unsigned char buffer[32];
} FDBMappedKeyValue;

typedef struct granulesummary {
    FDBKeyRange key_range;
    int64_t snapshot_version;
    int64_t snapshot_size;
    int64_t delta_version;
    int64_t delta_size;
} FDBGranuleSummary;

#pragma pack(pop)

/* How a program would read blob granules' files. Never used. */
typedef struct readgranulecontext {
    void* userContext;
    int64_t (*start_load_f)(const char*, int, int64_t, int64_t, int64_t, void*);
    uint8_t* (*get_load_f)(int64_t, void*);
    void (*free_load_f)(int64_t, void*);
    fdb_bool_t debugNoMaterialize;
    int granuleParallelism;
} FDBReadBlobGranuleContext;

#ifdef __cplusplus
}
#endif

#endif
