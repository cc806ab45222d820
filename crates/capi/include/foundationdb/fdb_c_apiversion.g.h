#ifndef FDB_C_APIVERSION_G_H
#define FDB_C_APIVERSION_G_H
#pragma once

/* The newest API version that programs may be compiled for. */
#define FDB_LATEST_API_VERSION 740

#endif
