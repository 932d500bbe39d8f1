"""Full blocks by the tokens that they, and everything before them, hold.

The cache is a forest: one root per namespace, one node per full block, its parent the
block before. A node is looked up in a table keyed by a hash chained from its parent's
hash, and accepted only if its parent and its tokens are the wanted ones. So the hash
decides speed, never a result: a constant one is correct.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

TokenHash = Callable[[int, Sequence[int]], int]
"""(parent's hash, tokens) -> hash, both in 0 .. 2**32 - 1."""

_FNV_OFFSET, _FNV_PRIME, _MASK = 2166136261, 16777619, 0xFFFFFFFF


def fnv1a(seed: int, tokens: Sequence[int]) -> int:
    """FNV-1a over 32-bit lanes, one token a lane.

    In JavaScript the same is ``h = Math.imul(h ^ token, 16777619) >>> 0``.
    """
    value = seed
    for token in tokens:
        value = (value ^ token) * _FNV_PRIME & _MASK
    return value


class Node:
    """A cached block; the root of a namespace has block -1, no tokens, and a salt."""

    __slots__ = ("alive", "block", "children", "hash", "parent", "salt", "tokens")

    def __init__(self, parent: Node | None, hash_: int, block: int, tokens: tuple[int, ...]):
        self.parent = parent
        self.hash = hash_
        self.block = block
        self.tokens = tokens
        self.children: dict[int, Node] = {}  # by block: constant-time removal, insertion order
        self.alive = True
        self.salt = ""


class PrefixCache:
    """Which block holds the keys and values of which prefix.

    Args:
        block_size: tokens of a full block.
        model: whose keys and values these are; part of every namespace.
        token_hash: chains the hash; injectable, as nothing but speed depends on it.
    """

    def __init__(self, block_size: int, model: str, token_hash: TokenHash = fnv1a) -> None:
        self._block_size = block_size
        self._model = model
        self._hash = token_hash
        self._roots: dict[str, Node] = {}
        self._table: dict[int, list[Node]] = {}
        self._by_block: dict[int, Node] = {}

    def __len__(self) -> int:
        """Cached blocks, referenced or free."""
        return len(self._by_block)

    def holds(self, block: int) -> bool:
        """Whether ``block`` can be found by its tokens."""
        return block in self._by_block

    def root(self, salt: str) -> Node:
        """Start of every chain of one tenant; chains of different salts never meet."""
        root = self._roots.get(salt)
        if root is None:
            name = [*map(ord, self._model), 0, *map(ord, salt)]
            root = Node(None, self._hash(_FNV_OFFSET, name), -1, ())
            root.salt = salt
            self._roots[salt] = root
        return root

    def match(self, salt: str, tokens: Sequence[int], max_blocks: int) -> list[Node]:
        """The longest cached chain of full blocks at the start of ``tokens``.

        Args:
            salt: the tenant's namespace.
            tokens: ids.
            max_blocks: longest chain wanted.
        """
        root = self._roots.get(salt)
        chain: list[Node] = []
        if root is None:
            return chain
        size, node = self._block_size, root
        for i in range(min(max_blocks, len(tokens) // size)):
            full = tuple(tokens[i * size : (i + 1) * size])
            found = self._find(node, full, self._hash(node.hash, full))
            if found is None:
                break
            chain.append(found)
            node = found
        return chain

    def add(self, parent: Node, tokens: tuple[int, ...], block: int) -> Node:
        """Make a full block findable, unless its content is cached already.

        Args:
            parent: a living node.
            tokens: ids of the block, block_size of them.
            block: where the keys and values are.

        Returns:
            the node of this content: of ``block``, or of the block that holds the same.
        """
        key = self._hash(parent.hash, tokens)
        found = self._find(parent, tokens, key)
        if found is not None:
            return found
        node = Node(parent, key, block, tokens)
        self._table.setdefault(node.hash, []).append(node)
        self._by_block[block] = node
        parent.children[block] = node
        return node

    def evict(self, block: int) -> list[int]:
        """Forget ``block`` and everything that only it leads to.

        Returns:
            the blocks that are forgotten, ``block`` first.
        """
        node = self._by_block.get(block)
        if node is None:
            return []
        if node.parent is not None:
            del node.parent.children[block]
            if node.parent.parent is None and not node.parent.children:
                # salts come and go; an empty namespace is not kept
                node.parent.alive = False
                del self._roots[node.parent.salt]
        gone: list[int] = []
        queue = [node]
        while queue:
            node = queue.pop()
            node.alive = False
            bucket = self._table[node.hash]
            bucket.remove(node)
            if not bucket:
                del self._table[node.hash]
            del self._by_block[node.block]
            gone.append(node.block)
            queue.extend(node.children.values())
        return gone

    def _find(self, parent: Node, tokens: tuple[int, ...], key: int) -> Node | None:
        for node in self._table.get(key, ()):
            if node.parent is parent and node.tokens == tokens:
                return node
        return None
