/* SPDX-License-Identifier: Apache-2.0
 *
 * From RDMA devices to an IP address, by way of their network interfaces.
 */
#include "cli/address.h"

#include "base/err.h"
#include "base/proc.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char devices[] = "/sys/class/infiniband";

/* The address of `interface`: IPv4 first, then IPv6 that is not link-local. */
static bool address_of(const struct ifaddrs *all, const char *interface, char *buf, size_t size)
{
	char text[INET6_ADDRSTRLEN];

	for (int family = AF_INET;; family = AF_INET6) {
		for (const struct ifaddrs *a = all; a; a = a->ifa_next) {
			if (!a->ifa_addr || a->ifa_addr->sa_family != family ||
			    strcmp(a->ifa_name, interface))
				continue;
			const struct in6_addr *six =
			    &((const struct sockaddr_in6 *)(const void *)a->ifa_addr)->sin6_addr;
			const struct in_addr *four =
			    &((const struct sockaddr_in *)(const void *)a->ifa_addr)->sin_addr;
			if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(six))
				continue;
			inet_ntop(family, family == AF_INET ? (const void *)four : six, text,
				  sizeof(text));
			snprintf(buf, size, family == AF_INET ? "%s" : "[%s]", text);
			return true;
		}
		if (family == AF_INET6)
			return false;
	}
}

/* Tries the interfaces that the files matching `pattern` contain, or else are called by. */
static bool try_files(const struct ifaddrs *all, const char *pattern, bool contents, char *buf,
		      size_t size)
{
	glob_t found;
	bool ok = false;

	if (glob(pattern, 0, NULL, &found) != 0)
		return false;
	for (size_t i = 0; i < found.gl_pathc && !ok; i++) {
		const char *name = strrchr(found.gl_pathv[i], '/') + 1;
		char word[64];

		if (!contents)
			ok = address_of(all, name, buf, size);
		else if (proc_line(found.gl_pathv[i], word, sizeof(word)) && *word)
			ok = address_of(all, word, buf, size);
	}
	globfree(&found);
	return ok;
}

/* An iWARP port's GID is no address: it begins with the MAC address of the interface. */
static bool try_mac(const struct ifaddrs *all, const char *device, char *buf, size_t size)
{
	char path[512], gid[64];
	unsigned char mac[6];

	snprintf(path, sizeof(path), "%s/%s/ports/1/gids/0", devices, device);
	if (!proc_line(path, gid, sizeof(gid)) || !*gid ||
	    sscanf(gid, "%2hhx%2hhx:%2hhx%2hhx:%2hhx%2hhx", &mac[0], &mac[1], &mac[2], &mac[3],
		   &mac[4], &mac[5]) != 6)
		return false;
	for (const struct ifaddrs *a = all; a; a = a->ifa_next) {
		const struct sockaddr_ll *link = (const void *)a->ifa_addr;

		if (link && link->sll_family == AF_PACKET && link->sll_halen == sizeof(mac) &&
		    !memcmp(link->sll_addr, mac, sizeof(mac)) &&
		    address_of(all, a->ifa_name, buf, size))
			return true;
	}
	return false;
}

static bool try_device(const struct ifaddrs *all, const char *device, char *buf, size_t size)
{
	/* RoCE names the interface of each GID, a software device the one it was made on; others
	 * only hang beside theirs. */
	static const struct {
		const char *files;
		bool contents;
	} places[] = {
	    {"ports/*/gid_attrs/ndevs/*", true}, {"parent", true}, {"device/net/*", false}};
	char pattern[512];

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(pattern, sizeof(pattern), "%s/%s/%s", devices, device, places[i].files);
		if (try_files(all, pattern, places[i].contents, buf, size))
			return true;
	}
	return try_mac(all, device, buf, size);
}

static int no_device(const char *names)
{
	if (!*names)
		return err_set(
		    ENODEV,
		    "there is no RDMA device here (none in %s). Without hardware, a "
		    "software one can be made on a kernel that has the module: `rdma link "
		    "add rxe0 type rxe netdev INTERFACE`; or use --transport shm",
		    devices);
	return err_set(ENODEV,
		       "no RDMA device has an IP address (found:%s). Give its network "
		       "interface one (`ip addr add ADDRESS/PREFIX dev INTERFACE`), or say which "
		       "address to use with --address",
		       names);
}

int address_of_first_device(char *buf, size_t size)
{
	struct dirent **list = NULL;
	struct ifaddrs *all;
	char names[256] = "";
	bool found = false;

	if (getifaddrs(&all) < 0)
		return err_set(errno, "network interfaces can't be listed: %s", strerror(errno));
	int n = scandir(devices, &list, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		size_t used = strlen(names);

		if (list[i]->d_name[0] != '.' && !found) {
			snprintf(names + used, sizeof(names) - used, " %s", list[i]->d_name);
			found = try_device(all, list[i]->d_name, buf, size);
		}
		free(list[i]);
	}
	free(list);
	freeifaddrs(all);
	return found ? 0 : no_device(names);
}
