/* What the bindings see of DPDK, and the out-of-line forms of its inline functions.
 *
 * Each function below is a call and nothing else: no branch and no policy lives in C. The calls
 * that matter per packet exist per burst, so that the cost of leaving Rust is shared by 32 packets.
 */
#ifndef WEIR_DPDK_SHIM_H
#define WEIR_DPDK_SHIM_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_mempool.h>
#include <rte_ring.h>
#include <rte_version.h>

/* Thread-local variables of DPDK, which bindings cannot name. */
int shim_rte_errno(void);
unsigned int shim_lcore_id(void);

struct rte_mbuf *shim_mbuf_alloc(struct rte_mempool *pool);
int shim_mbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int count);
void shim_mbuf_free(struct rte_mbuf *mbuf);
uint16_t shim_mbuf_data_room(struct rte_mempool *pool);

/* Rings with one producer and one consumer; the number moved is returned. */
unsigned int shim_ring_enqueue(struct rte_ring *ring, void *const *items, unsigned int count);
unsigned int shim_ring_dequeue(struct rte_ring *ring, void **items, unsigned int count);
unsigned int shim_ring_count(const struct rte_ring *ring);

/* A stdio stream whose bytes go to `write`; it may be called from any thread, with part of a line. */
typedef void (*shim_log_write)(const char *bytes, size_t count);
FILE *shim_log_stream(shim_log_write write);

#endif
