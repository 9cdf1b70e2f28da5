package org.apache.hadoop.hive.ql.exec;

import java.util.ArrayList;
import java.util.List;
import org.apache.hive.com.esotericsoftware.kryo.Kryo;
import org.apache.hive.com.esotericsoftware.kryo.Serializer;
import org.apache.hive.com.esotericsoftware.kryo.io.Input;
import org.apache.hive.com.esotericsoftware.kryo.io.Output;

/**
 * Replaces Hive's serialiser of {@code ArrayList.subList}, which reads a field that Java 9 removed. It writes the
 * elements instead of the view.
 */
class SerializationUtilities$ArrayListSubListSerializer extends Serializer<List<?>> {
  public SerializationUtilities$ArrayListSubListSerializer() {}

  @Override
  public void write(Kryo kryo, Output output, List<?> list) {
    output.writeInt(list.size(), true);
    list.forEach(element -> kryo.writeClassAndObject(output, element));
  }

  @Override
  public List<?> read(Kryo kryo, Input input, Class<List<?>> type) {
    int size = input.readInt(true);
    List<Object> list = new ArrayList<>(size);
    kryo.reference(list);
    for (int i = 0; i < size; i++) {
      list.add(kryo.readClassAndObject(input));
    }
    return list;
  }

  @Override
  public List<?> copy(Kryo kryo, List<?> list) {
    List<Object> copy = new ArrayList<>(list.size());
    kryo.reference(copy);
    list.forEach(element -> copy.add(kryo.copy(element)));
    return copy;
  }
}
