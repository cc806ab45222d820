/* What one copy of the C library has for another that loads it. Programs have no use for it: all of it fails with 2108 or does
 * nothing. */
#ifndef FDB_C_INTERNAL_H
#define FDB_C_INTERNAL_H
#pragma once

#ifndef DLLEXPORT
#define DLLEXPORT
#endif

#ifndef WARN_UNUSED_RESULT
#define WARN_UNUSED_RESULT
#endif

#include "fdb_c_types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DatabaseSharedState DatabaseSharedState;

DLLEXPORT FDBFuture* fdb_database_create_shared_state(FDBDatabase* db);
DLLEXPORT void fdb_database_set_shared_state(FDBDatabase* db, DatabaseSharedState* state);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_future_get_shared_state(FDBFuture* f, DatabaseSharedState** out_state);
DLLEXPORT void fdb_use_future_protocol_version(void);
DLLEXPORT FDBFuture* fdb_transaction_read_blob_granules_start(
    FDBTransaction* tr, uint8_t const* begin, int begin_length, uint8_t const* end, int end_length,
    int64_t begin_version, int64_t read_version, int64_t* out_read_version);
DLLEXPORT FDBResult* fdb_transaction_read_blob_granules_finish(
    FDBTransaction* tr, FDBFuture* f, uint8_t const* begin, int begin_length, uint8_t const* end, int end_length,
    int64_t begin_version, int64_t read_version, FDBReadBlobGranuleContext* context);

#ifdef __cplusplus
}
#endif

#endif
