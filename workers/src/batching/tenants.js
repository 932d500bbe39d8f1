/**
 * Which tenant of a traffic class has the next turn.
 *
 * Fair queueing by device time: every tenant has an account of the time it was given, and
 * one that is further ahead of the least served tenant in the queue than an allowance waits
 * until the others have caught up. Among those within the allowance the most urgent request
 * goes first, so with little contention the order is that of the requests alone. An account
 * starts one allowance below the least served one's, so a newcomer goes before those who have
 * been at it for long, but nobody saves up more than that while away: the virtual time of
 * start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996). Counting what was given
 * instead of asking for weights in advance is the idea of the virtual token counter (Sheng et
 * al., "Fairness in Serving Large Language Models", OSDI 2024).
 *
 * With T tenants in the queue a turn costs O(log T), and nothing when there is only one.
 */
import { Heap } from "./heap.js";

/** @typedef {import("./request.js").Request} Request */
/** @typedef {import("./types.js").Traffic} Traffic */

const SMALL = 64; // heaps of lazily deleted entries are rebuilt only above this size

/** One tenant's requests of one class, by (key, arrival). */
export class Tenant {
  /** Its requests with waiting items. */
  live = 0;
  /** Its account. */
  servedNs = 0;
  /** It has an entry in the heap of accounts. */
  listed = false;

  /** @type {Heap<Request>} */
  #heap = new Heap();
  #traffic;

  /**
   * @param {string} name who it is
   * @param {number} order breaks ties: ascending in order of first appearance
   * @param {Traffic} traffic
   */
  constructor(name, order, traffic) {
    this.name = name;
    this.order = order;
    this.#traffic = traffic;
  }

  /**
   * Add a queued request.
   *
   * @param {number} key
   * @param {Request} request
   */
  push(key, request) {
    this.#heap.push(key, request.seq, request);
  }

  /** The entry whose turn it is; there is one while `live` > 0. */
  head() {
    for (;;) {
      const entry = /** @type {import("./heap.js").Entry<Request>} */ (this.#heap.peek());
      if (this.#isLive(entry.value)) return entry;
      this.#heap.pop();
    }
  }

  /** Drop the head, all of whose items have left. */
  pop() {
    this.#heap.pop();
  }

  /** Rebuild the heap when entries of removed requests outnumber the living. */
  shrink() {
    if (this.#heap.size > SMALL && this.#heap.size > 2 * this.live) {
      this.#heap.filter((request) => this.#isLive(request));
    }
  }

  /** @param {Request} request */
  #isLive(request) {
    return request.queued && request.traffic === this.#traffic;
  }
}

/** The tenants of one class, and whose turn it is. */
export class TenantOrder {
  /** Those with waiting requests, by name. @type {Map<string, Tenant>} */
  active = new Map();

  #traffic;
  #leadNs;
  /** @type {Map<string, Tenant>} */
  #tenants = new Map();
  /** @type {Tenant | null} */
  #sole = null;
  #numSeen = 0;
  /** The highest that the least served account has been. */
  #virtualNs;
  // Entries of these heaps are checked when they surface: the account or the head they were
  // made for may be another by then. Accounts only grow.
  /** @type {Heap<Tenant>} */
  #accounts = new Heap();
  /** @type {Heap<Tenant>} */
  #ready = new Heap();
  /** @type {Heap<Tenant>} */
  #parked = new Heap();

  /**
   * @param {Traffic} traffic
   * @param {number} leadNs
   */
  constructor(traffic, leadNs) {
    this.#traffic = traffic;
    this.#leadNs = leadNs;
    this.#virtualNs = leadNs;
  }

  /**
   * The tenant of a queued request.
   *
   * @param {Request} request
   * @returns {Tenant}
   */
  of(request) {
    return this.#sole ?? /** @type {Tenant} */ (this.active.get(request.tenant));
  }

  /**
   * Device time was given to a tenant. Only of those in this queue is it remembered, and of
   * those that left it before the others caught up.
   *
   * @param {string} name
   * @param {number} ns
   */
  charge(name, ns) {
    const tenant = this.#tenants.get(name);
    if (tenant !== undefined) tenant.servedNs += ns;
  }

  /**
   * A request waits.
   *
   * @param {number} key
   * @param {Request} request
   */
  push(key, request) {
    const tenant = this.active.get(request.tenant) ?? this.#enter(request.tenant);
    tenant.live += 1;
    tenant.push(key, request);
    if (this.#sole === null && tenant.head().value === request) {
      this.#ready.push(key, request.seq, tenant);
    }
  }

  /**
   * A request of `tenant` waits no more.
   *
   * @param {Tenant} tenant
   */
  removed(tenant) {
    tenant.live -= 1;
    if (tenant.live === 0) {
      this.#leave(tenant);
    } else if (this.#sole === null) {
      this.#makeReady(tenant);
      if (this.#ready.size > SMALL + 4 * this.active.size) this.#rebuild();
    }
  }

  /**
   * The request whose turn it is.
   *
   * @returns {Request | null}
   */
  head() {
    if (this.#sole !== null) return this.#sole.head().value;
    if (this.active.size === 0) return null;
    const limitNs = this.#least() + this.#leadNs;
    const parked = this.#parked;
    for (let top = parked.peek(); top !== undefined && top.key <= limitNs; top = parked.peek()) {
      parked.pop();
      if (top.value.live > 0) this.#makeReady(top.value);
    }
    for (;;) {
      const { key, seq, value: tenant } = this.#top(this.#ready);
      const entry = tenant.live > 0 ? tenant.head() : null;
      if (entry === null || entry.key !== key || entry.seq !== seq) {
        this.#ready.pop();
      } else if (tenant.servedNs > limitNs) {
        this.#ready.pop();
        parked.push(tenant.servedNs, tenant.order, tenant);
      } else {
        return entry.value;
      }
    }
  }

  /** The account of the least served active tenant. */
  #least() {
    const accounts = this.#accounts;
    for (;;) {
      const { key: servedNs, value: tenant } = this.#top(accounts);
      if (tenant.live === 0) {
        tenant.listed = false;
        accounts.pop();
      } else if (tenant.servedNs > servedNs) {
        accounts.pop();
        accounts.push(tenant.servedNs, tenant.order, tenant);
      } else {
        this.#virtualNs = Math.max(this.#virtualNs, servedNs);
        return servedNs;
      }
    }
  }

  /**
   * @param {string} name
   * @returns {Tenant}
   */
  #enter(name) {
    let tenant = this.#tenants.get(name);
    if (tenant === undefined) {
      tenant = new Tenant(name, this.#numSeen, this.#traffic);
      this.#numSeen += 1;
      this.#tenants.set(name, tenant);
    }
    if (this.#sole !== null) this.#virtualNs = Math.max(this.#virtualNs, this.#sole.servedNs);
    else if (this.active.size > 0) this.#least();
    tenant.servedNs = Math.max(tenant.servedNs, this.#virtualNs - this.#leadNs);
    this.active.set(name, tenant);
    if (this.active.size === 1) {
      this.#sole = tenant;
    } else if (this.#sole !== null) {
      this.#sole = null;
      this.#rebuild();
    }
    this.#list(tenant);
    return tenant;
  }

  /** @param {Tenant} tenant */
  #leave(tenant) {
    this.active.delete(tenant.name);
    if (this.active.size === 1) {
      const [sole] = this.active.values();
      this.#sole = sole;
      for (const listed of this.#accounts.values()) listed.listed = false;
      this.#accounts = new Heap();
      this.#ready = new Heap();
      this.#parked = new Heap();
    } else if (this.active.size === 0) {
      // The queue is empty: nobody was kept waiting, so nobody owes anything
      this.#virtualNs = Math.max(this.#virtualNs, tenant.servedNs);
      this.#sole = null;
      this.#tenants.clear();
    }
    if (this.#tenants.size > SMALL + 2 * this.active.size) {
      const startNs = this.#virtualNs - this.#leadNs;
      for (const [name, { live, servedNs }] of this.#tenants) {
        if (live === 0 && servedNs <= startNs) this.#tenants.delete(name);
      }
    }
  }

  /** @param {Tenant} tenant */
  #list(tenant) {
    if (this.#sole === null && !tenant.listed) {
      tenant.listed = true;
      this.#accounts.push(tenant.servedNs, tenant.order, tenant);
    }
  }

  /** @param {Tenant} tenant one with a waiting request */
  #makeReady(tenant) {
    const { key, seq } = tenant.head();
    this.#ready.push(key, seq, tenant);
  }

  /** Make the heaps anew from the active tenants; a newcomer has no request yet. */
  #rebuild() {
    this.#ready = new Heap();
    this.#parked = new Heap();
    for (const tenant of this.active.values()) {
      this.#list(tenant);
      if (tenant.live > 0) this.#makeReady(tenant);
    }
  }

  /** @param {Heap<Tenant>} heap one that is not empty */
  #top(heap) {
    return /** @type {import("./heap.js").Entry<Tenant>} */ (heap.peek());
  }
}
