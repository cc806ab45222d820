#ifndef FDB_C_APIVERSION_G_H
#define FDB_C_APIVERSION_G_H
#pragma once

/* The newest API version that programs may be compiled for. */
#define FDB_LATEST_API_VERSION 800
/* The newest one that bindings use. */
#define FDB_LATEST_BINDINGS_API_VERSION 800

#endif
