# SPDX-License-Identifier: Apache-2.0

"""How concurrent decisions about a fabric get an order, and why none starves or claims twice.

A *decision* places or moves an allocation: an admission, a turn of the queue, a repair, a change of
placement. It searches without a lock, and commits only what still holds (optimistic concurrency
control)::

    decision
       |
    order of threads       waits up to 0.25 s for the previous thread   (arrival_order)
       |                   new requests that wait commit as one group   (group_commit)
    order of processes     up to 0.25 s, for 10 s after a lost race     (arrival_order)
       |
    +->read the ledger     generation g; a short read, which is left    (decider)
    |  |                   out if the request's snapshot is the newest
    |  |
    |  search on a copy    no lock, no transaction
    |  |
    |  lock the fabric     the row, in a transaction that writes
    |  |
    |  |- another decision has priority: roll back, wait up to 30 s --->+
    |  |- not at g, others claimed:      roll back -------------------->+
    |  |- not at g, nobody claimed:      roll back, claim the same at   |
    |  |                                 the new generation; no search  |
    |  |                                                                |
    |  write, commit       generation g + 1, the answer                 |
    |                                                                   |
    +<-after the third lost race: take priority   (priority_locks) -----+

Figures:

=======================  =========  ==============================================================
``arrival_order``        0.25 s     ``PATIENCE``: longest wait for a thread, and for a process
``arrival_order``        10 s       ``MEMORY``: after a lost race, processes decide in order
``decider``              3          ``LOSSES``: lost races before a decision takes priority
``decider``              5          ``DECISIONS``: records that moved on before the caller is told
``engine``               20         ``ATTEMPTS``: the same, for transactions that Galera rolled back
``priority_locks``       30 s       ``PATIENCE``: longest respect for another one's priority
=======================  =========  ==============================================================

*Assumptions.*

* A1. The database is atomic and durable. A lock on a fabric's row lasts until its transaction ends.
  Of two transactions that change the row on two nodes of Galera, only one commits.
* A2. Each transaction that changes a fabric's ledger locks its row and advances its generation.
* A3. The database ends a session's lock with the session, and serves waiting sessions in order.
* A4. A decision with priority, and those before it that wait for priority, together end within
  30 s. A search uses up its budget in about two seconds (``[api] search_budget``).

*Nothing is claimed twice.* Invariant: a commit adds only claims that were free at the generation
before it. The decider claims on a copy of the ledger at generation g, and ``Ledger.claim`` refuses
what has an owner. In a group, each member claims on the draft that the previous one left. The
transaction locks the row and finds g there, so by A1 and A2 the ledger has not changed. The claims
are therefore free when they are written. The database checks this again: primary keys refuse a
second owner of a host or link, and a CHECK refuses more slots than a host has. If A2 was broken,
the decider reads the ledger again from the tables, once, and then raises ``DoubleClaim``. Two
requests with one idempotency key meet at a primary key, and the second one gets the answer of the
first.

*Answers come in order.* The row's lock makes all commits of a fabric one sequence, which the
generations number. Each answer is that of deciding alone at its generation. A decision reads the
ledger after its request arrived, so it sees every answer given before. An answer that writes
nothing (no room) is true at the generation that was read. If only releases and states of components
came between, the same claims are written later, as if the decision had come first. Threads decide
in order of arrival, and a group has the outcome of its line's order. A search of more than 0.25 s
loses this place: later decisions may commit first, until it takes priority.

*No request starves.* A decision with priority holds a lock that newcomers look for under the row's
lock; they roll back if it is held. One newcomer at most looked before and has not committed yet. On
PostgreSQL there is none, because newcomers share the lock until they end. By A4, a decision loses
three races, and perhaps one more, to other claims. So it searches at most five times. A component
that it chose may fail meanwhile, which costs one search for each failure. Other changes cost no
search, only a short transaction each. Decisions that lost three races take priority in the order in
which their processes asked (A3). A record that moves on, or a transaction that Galera rolls back,
counts as a lost race. After ``DECISIONS`` or ``ATTEMPTS`` such events the caller gets
``ConcurrentUpdate``.

*No wait lasts for ever.* Waits for threads, processes and priority have the limits above, and
happen while the waiting thread has no transaction. They always come in this order: thread, process,
priority, then rows. A member of a group waits until its leader has left, and the leader waits for
no member.

*If an assumption fails*, only speed and order suffer, because each commit compares generations. A
stopped process delays others by up to 30 s, and then they overrun it. Searches longer than A4 may
lose against decisions that overran them. Galera keeps a session's locks on one node: decisions on
other nodes do not see priority there. Processes on SQLite have no order among themselves; priority
is a lock on a file. If two of its processes wait for priority, either may be first.
"""
