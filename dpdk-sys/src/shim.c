#define _GNU_SOURCE /* fopencookie */
#include "shim.h"

#include <sys/types.h>

int shim_rte_errno(void)
{
	return rte_errno;
}

unsigned int shim_lcore_id(void)
{
	return rte_lcore_id();
}

struct rte_mbuf *shim_mbuf_alloc(struct rte_mempool *pool)
{
	return rte_pktmbuf_alloc(pool);
}

int shim_mbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int count)
{
	return rte_pktmbuf_alloc_bulk(pool, mbufs, count);
}

void shim_mbuf_free(struct rte_mbuf *mbuf)
{
	rte_pktmbuf_free(mbuf);
}

uint16_t shim_mbuf_data_room(struct rte_mempool *pool)
{
	return rte_pktmbuf_data_room_size(pool);
}

unsigned int shim_ring_enqueue(struct rte_ring *ring, void *const *items, unsigned int count)
{
	return rte_ring_sp_enqueue_burst(ring, items, count, NULL);
}

unsigned int shim_ring_dequeue(struct rte_ring *ring, void **items, unsigned int count)
{
	return rte_ring_sc_dequeue_burst(ring, items, count, NULL);
}

unsigned int shim_ring_count(const struct rte_ring *ring)
{
	return rte_ring_count(ring);
}

static ssize_t log_write(void *cookie, const char *bytes, size_t count)
{
	((shim_log_write)cookie)(bytes, count);
	return (ssize_t)count;
}

FILE *shim_log_stream(shim_log_write write)
{
	cookie_io_functions_t io = { .write = log_write };
	return fopencookie((void *)write, "w", io);
}
