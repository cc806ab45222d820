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
typedef struct FDB_cdc_consumer FDBCdcConsumer;

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
#if defined(FDB_API_VERSION) && FDB_API_VERSION < 630
    const void* key;
    int key_length;
    const void* value;
    int value_length;
#else
    const uint8_t* key;
    int key_length;
    const uint8_t* value;
    int value_length;
#endif
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

typedef enum { FDB_BG_MUTATION_TYPE_SET_VALUE = 0, FDB_BG_MUTATION_TYPE_CLEAR_RANGE = 1 } FDBBGMutationType;

typedef struct bgtenantprefix {
    fdb_bool_t present;
    FDBKey prefix;
} FDBBGTenantPrefix;

typedef struct bgencryptionkey {
    int64_t domain_id;
    uint64_t base_key_id;
    uint32_t base_kcv;
    uint64_t random_salt;
    FDBKey base_key;
} FDBBGEncryptionKey;

typedef struct bgencryptionctx {
    fdb_bool_t present;
    FDBBGEncryptionKey textKey;
    uint32_t textKCV;
    FDBBGEncryptionKey headerKey;
    uint32_t headerKCV;
    FDBKey iv;
} FDBBGEncryptionCtx;

typedef struct bgfilepointer {
    const uint8_t* filename_ptr;
    int filename_length;
    int64_t file_offset;
    int64_t file_length;
    int64_t full_file_length;
    int64_t file_version;
    FDBBGEncryptionCtx encryption_ctx;
} FDBBGFilePointer;

typedef struct bgmutation {
    uint8_t type; /* an FDBBGMutationType */
    int64_t version;
    const uint8_t* param1_ptr;
    int param1_length;
    const uint8_t* param2_ptr;
    int param2_length;
} FDBBGMutation;

typedef struct bgfiledescription {
    FDBKeyRange key_range;
    fdb_bool_t snapshot_present;
    FDBBGFilePointer snapshot_file_pointer;
    int delta_file_count;
    FDBBGFilePointer* delta_files;
    int memory_mutation_count;
    FDBBGMutation* memory_mutations;
    FDBBGTenantPrefix tenant_prefix;
} FDBBGFileDescription;

typedef enum {
    FDB_CDC_MUTATION_TYPE_SET_VALUE = 0,
    FDB_CDC_MUTATION_TYPE_CLEAR_RANGE = 1,
    FDB_CDC_MUTATION_TYPE_ADD = 2,
    FDB_CDC_MUTATION_TYPE_AND = 6,
    FDB_CDC_MUTATION_TYPE_OR = 7,
    FDB_CDC_MUTATION_TYPE_XOR = 8,
    FDB_CDC_MUTATION_TYPE_APPEND_IF_FITS = 9,
    FDB_CDC_MUTATION_TYPE_MAX = 12,
    FDB_CDC_MUTATION_TYPE_MIN = 13,
    FDB_CDC_MUTATION_TYPE_SET_VERSIONSTAMPED_KEY = 14,
    FDB_CDC_MUTATION_TYPE_SET_VERSIONSTAMPED_VALUE = 15,
    FDB_CDC_MUTATION_TYPE_BYTE_MIN = 16,
    FDB_CDC_MUTATION_TYPE_BYTE_MAX = 17,
    FDB_CDC_MUTATION_TYPE_MIN_V2 = 18,
    FDB_CDC_MUTATION_TYPE_AND_V2 = 19,
    FDB_CDC_MUTATION_TYPE_COMPARE_AND_CLEAR = 20
} FDBCdcMutationType;

typedef struct cdc_stream_info {
    FDBKey name;
    uint64_t stream_id;
    const FDBKeyRange* ranges;
    int range_count;
    int64_t min_version;
} FDBCdcStreamInfo;

typedef struct cdc_mutation {
    uint8_t type; /* an FDBCdcMutationType */
    const uint8_t* param1;
    int param1_length;
    const uint8_t* param2;
    int param2_length;
} FDBCdcMutation;

typedef struct cdc_versioned_mutations {
    int64_t version;
    const FDBCdcMutation* mutations;
    int mutation_count;
} FDBCdcVersionedMutations;

#pragma pack(pop)

/* How a program would read blob granules' files. Never used. */
typedef struct readgranulecontext {
    void* userContext;
    int64_t (*start_load_f)(
        const char* filename, int filename_length, int64_t offset, int64_t length, int64_t full_file_length, void* context);
    uint8_t* (*get_load_f)(int64_t load_id, void* context);
    void (*free_load_f)(int64_t load_id, void* context);
    fdb_bool_t debugNoMaterialize;
    int granuleParallelism;
} FDBReadBlobGranuleContext;

#ifdef __cplusplus
}
#endif

#endif
